-- Domain events: facts that no single row shows, such as supplier.connected.

-- Declares a type, which belongs to the caller; its owner and operators may change it. Said again with nothing new, by whomever, it
-- changes nothing.
create or replace function rowbell.declare_type(type text, description text default '', webhook boolean default false)
returns int language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments)
    values ('declare_type', jsonb_build_object('type', type, 'description', coalesce(description, ''), 'webhook', coalesce(webhook, false)))
    returning result into answer;
  return answer::int;
end $$;

create or replace function rowbell.declare_type_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  new_type    constant text := arguments ->> 'type';
  new_description constant text := coalesce(arguments ->> 'description', '');
  new_webhook constant boolean := coalesce((arguments ->> 'webhook')::boolean, false);
  declared    rowbell.event_types;
  most        int;
begin
  if new_type is null or new_type = '' or new_type ~ '[\s*]' or length(new_type) > 200 then
    raise exception 'rowbell.declare_type: % is not a type: 1 to 200 characters, no white space, no *',
      coalesce(quote_literal(new_type), 'NULL') using errcode = 'invalid_parameter_value';
  end if;
  if length(new_description) > 10000 then
    raise exception 'rowbell.declare_type: the description has % characters, more than 10000', length(new_description)
      using errcode = 'program_limit_exceeded';
  end if;
  if starts_with(new_type, 'rowbell.') then
    raise exception 'rowbell.declare_type: types that begin with rowbell. are reserved for alerts'
      using errcode = 'reserved_name';
  end if;
  select * into declared from rowbell.event_types t where t.type = new_type;
  if declared.id is null then
    select i.most_per_owner into most from rowbell.installation i;
    if not rowbell.is_operator(caller)
       and (select count(*) from (select from rowbell.event_types t where t.published_id is null and t.owner = caller limit most) as few) >= most then
      raise exception 'rowbell.declare_type: role % has declared % types, as many as it may', quote_ident(caller), most
        using errcode = 'configuration_limit_exceeded', hint = 'The limit is rowbell.installation.most_per_owner.';
    end if;
    insert into rowbell.event_types (type, description, webhook, owner) values (new_type, new_description, new_webhook, caller)
      on conflict (type) do nothing;
    select * into declared from rowbell.event_types t where t.type = new_type;
  end if;
  if declared.published_id is not null then
    raise exception 'rowbell.declare_type: % is a row change of a published table', quote_literal(new_type)
      using errcode = 'duplicate_object', hint = 'Choose another name for the domain event.';
  end if;
  if (declared.description, declared.webhook) is distinct from (new_description, new_webhook) then
    if not rowbell.may_manage(caller, declared.owner) then
      raise exception 'rowbell.declare_type: % was declared by another role', quote_literal(new_type)
        using errcode = 'insufficient_privilege', hint = 'Whether its events may leave by webhook is for its owner to say, or for an operator.';
    end if;
    update rowbell.event_types t set description = new_description, webhook = new_webhook where t.id = declared.id;
  end if;
  return to_jsonb(declared.id);
end $$;

-- Records a domain event in the caller's transaction; returns its id (the webhook-id that receivers will see).
-- subject: what it is about, at most 1,024 bytes; a subscription that is ordered keeps the order per subject. data: at most
-- installation.event_bytes (256 KiB) as text.
create or replace function rowbell.record(type text, subject text, data jsonb default '{}', scope text default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  -- The transaction's id must be assigned before the sequence value is taken: the low-water mark rests on it.
  xact     constant xid8 := pg_current_xact_id();
  declared int;
  recorded uuid;
  most     int;
begin
  if octet_length(subject) > 1024 then
    raise exception 'rowbell.record: the subject has % bytes, more than 1024', octet_length(subject)
      using errcode = 'string_data_right_truncation';
  end if;
  -- Few limits are below this, so few events look the limit up.
  if octet_length(data::text) > 1024 then
    select i.event_bytes into most from rowbell.installation i;
    if octet_length(data::text) > most then
      raise exception 'rowbell.record: the data of % has % bytes, more than %', quote_literal(type), octet_length(data::text), most
        using errcode = 'program_limit_exceeded',
              hint = 'Record what happened and to what, and let receivers fetch the rest; or raise rowbell.installation.event_bytes.';
    end if;
  end if;
  if starts_with(type, 'rowbell.') then
    raise exception 'rowbell.record: events whose type begins with rowbell. are Rowbell''s own' using errcode = 'reserved_name';
  end if;
  select t.id into declared from rowbell.event_types t where t.type = record.type and t.published_id is null;
  if declared is null then
    raise exception 'rowbell.record: the event type % is not declared', coalesce(quote_literal(type), 'NULL')
      using errcode = 'undefined_object',
            hint = format('Declare it once: select rowbell.declare_type(%L, ''what it means'', webhook => true)',
                          coalesce(type, 'thing.happened'));
  end if;
  insert into rowbell.events (xact, type_id, scope, subject, data)
    values (xact, declared, rowbell.scope_named(scope), subject, coalesce(data, '{}'))
    returning rowbell.event_id(occurred_at, seq) into recorded;
  if rowbell.relays_sleep() then
    perform rowbell.wake_relay() from rowbell.installation i where i.wake = 'notify';
  end if;
  return recorded;
end $$;
