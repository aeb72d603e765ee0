-- The installation at a glance. One row; counts stop at 100,000. Locks: none.
select st.events_pending, st.events_oldest_age_seconds, st.events_retrying, st.events_poisoned, st.jobs_open,
       st.jobs_waiting, st.jobs_held, st.jobs_poisoned, st.stream_position,
       (select max(m.version) from rowbell.migrations m) as schema_version
  from rowbell.status st;
