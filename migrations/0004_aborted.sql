-- An attempt whose receiver gave the event up (`webhook-delivery: abort-message`) has a class of its own.
-- compatible_from: 1
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

-- Not validated, since the rows that are there passed a stricter check: nothing is read under the table's lock.
alter table rowbell.attempts drop constraint attempts_class_check,
  add constraint attempts_class_check check (class in ('delivered', 'dns', 'connect', 'tls', 'timeout', 'http_4xx', 'http_5xx',
                                                       'rejected', 'lost', 'egress_denied', 'condition', 'aborted')) not valid;
