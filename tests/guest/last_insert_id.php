<?php
// PDO asks lastval() for lastInsertId(): an application in PHP that writes a published table. Prints the ids that it was told.
$url = parse_url(getenv('ROWBELL_TEST_URL'));
parse_str($url['query'] ?? '', $query);
$dsn = sprintf('pgsql:host=%s;port=%s;dbname=%s', $query['host'] ?? $url['host'], $query['port'] ?? $url['port'] ?? 5432, ltrim($url['path'], '/'));
$db = new PDO($dsn, urldecode($url['user'] ?? ''), urldecode($url['pass'] ?? ''), [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
$ids = [];
$db->exec("insert into told.orders (tenant, n) values ('a', 1)");
$ids[] = $db->lastInsertId();
$db->beginTransaction();
$insert = $db->prepare('insert into told.orders (tenant, n) values (?, ?)');
$insert->execute(['b', 2]);
$ids[] = $db->lastInsertId();
$db->exec("insert into told.orders (n) values (3), (4)");
$ids[] = $db->lastInsertId();
$db->exec("update told.orders set n = n + 1");
$ids[] = $db->lastInsertId();
$db->query("select rowbell.record('shop.opened', 'a')");
$ids[] = $db->lastInsertId();
$db->commit();
$insert->execute(['c', 5]);
$ids[] = $db->lastInsertId();
echo implode(' ', $ids), "\n";
