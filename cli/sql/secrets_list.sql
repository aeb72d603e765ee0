-- Every webhook's and index's secrets as they are stored: only for who may read them (a member of rowbell_owner, or a superuser).
-- Rows: id, name, secrets (JSON array), client key or NULL, seal_id, kind. Locks: none.
select s.id, s.name, to_json(s.secrets)::text as secrets, s.settings ->> 'client_key' as client_key, s.seal_id, s.kind
  from rowbell.subscriptions s where s.kind in ('webhook', 'index') order by s.id;
