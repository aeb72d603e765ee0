-- Gauges. Rows: one: events_pending, events_oldest_age_seconds, events_poisoned. Bounded: see the view.
select s.events_pending + s.events_retrying as events_pending, coalesce(s.events_oldest_age_seconds, 0), s.events_poisoned
  from rowbell.status s
