-- The captured categories; null captures nothing. In the wait queue, the categories of the lease merged with those of
-- its pool.
ALTER TABLE browser_pools ADD COLUMN telemetry text[];
ALTER TABLE sessions ADD COLUMN telemetry text[];
ALTER TABLE pool_waiters ADD COLUMN telemetry text[];

-- The last number of each session's events. A transaction that stores events of a session locks the row until its end,
-- so that numbers become visible in order.
CREATE TABLE telemetry_counts (
    session_id uuid NOT NULL CONSTRAINT telemetry_counts_pkey PRIMARY KEY
        CONSTRAINT telemetry_counts_session_id_fkey REFERENCES sessions (id),
    last_seq bigint NOT NULL,
    last_at timestamptz NOT NULL,
    -- The agent's number of its last stored event.
    agent_seq bigint NOT NULL,
    -- The last stored batch: a writer that did not get the response stores it again.
    last_batch uuid NOT NULL
);

-- The telemetry events of sessions. Partitions are days, created in advance and dropped when they are too old; an event
-- that fits into none of them is stored in the default partition. `at` never decreases with increasing `seq`. No
-- foreign key to the session, because it would be checked for every event.
CREATE TABLE telemetry_events (
    session_id uuid NOT NULL,
    seq bigint NOT NULL,
    at timestamptz NOT NULL,
    category text NOT NULL CONSTRAINT telemetry_events_category_check CHECK (category IN (
        'console', 'page', 'interaction', 'network', 'control', 'connection', 'system', 'screenshot', 'captcha', 'monitor')),
    -- The event as callers get it: a JSON object. Stored as text, because no query reads its members.
    body text NOT NULL,
    -- Finds the first event of a time.
    CONSTRAINT telemetry_events_pkey PRIMARY KEY (session_id, at, seq)
) PARTITION BY RANGE (at);
-- The order of every query, which reads the first events of each category separately. So the cost of a page does not
-- depend on its beginning, on the number of events or on the filter.
CREATE INDEX telemetry_events_session_id_idx ON telemetry_events (session_id, category, seq);
CREATE TABLE telemetry_events_other PARTITION OF telemetry_events DEFAULT;
