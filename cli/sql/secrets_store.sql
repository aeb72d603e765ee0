-- Stores secrets sealed anew, if they are still those that were read. $1 id, $2 secrets before, $3 after (JSON arrays), $4
-- client key before or NULL, $5 after. One row: how many. Locks: the subscription. Index: subscriptions_pkey.
with stored as (
  update rowbell.subscriptions s
     set secrets = array(select json_array_elements_text($3::json)),
         settings = case when $5::text is null then s.settings
                         else jsonb_set(s.settings, '{client_key}', to_jsonb($5::text)) end
   where s.id = $1::int and s.secrets = array(select json_array_elements_text($2::json))
     and s.settings ->> 'client_key' is not distinct from $4
  returning 1)
select count(*) from stored;
