-- What is captured; none: nothing. A lease's own in the line is what it comes to, with the pool's beneath it.
ALTER TABLE browser_pools ADD COLUMN telemetry text[];
ALTER TABLE sessions ADD COLUMN telemetry text[];
ALTER TABLE pool_waiters ADD COLUMN telemetry text[];

-- How far each session has counted. Whoever stores events of a session holds its row until the end, so that numbers become visible
-- in their order.
CREATE TABLE telemetry_counts (
    session_id uuid NOT NULL CONSTRAINT telemetry_counts_pkey PRIMARY KEY
        CONSTRAINT telemetry_counts_session_id_fkey REFERENCES sessions (id),
    last_seq bigint NOT NULL,
    last_at timestamptz NOT NULL,
    -- The agent's own number of its last event that is stored.
    agent_seq bigint NOT NULL,
    -- What was stored last: a writer that was not told so stores it again.
    last_batch uuid NOT NULL
);

-- What happened in sessions. Partitions are days, made ahead and dropped when they are too old; what fits none of them goes into the
-- default one. `at` never falls while `seq` rises. No reference to the session: it would be looked up for every event.
CREATE TABLE telemetry_events (
    session_id uuid NOT NULL,
    seq bigint NOT NULL,
    at timestamptz NOT NULL,
    category text NOT NULL CONSTRAINT telemetry_events_category_check CHECK (category IN (
        'console', 'page', 'interaction', 'network', 'control', 'connection', 'system', 'screenshot', 'captcha', 'monitor')),
    -- As callers get it: a JSON object. Text, because nothing of it is ever asked for here.
    body text NOT NULL,
    -- Finds where a time begins.
    CONSTRAINT telemetry_events_pkey PRIMARY KEY (session_id, at, seq)
) PARTITION BY RANGE (at);
-- The order of every reading: each category by itself, the first few of each. So a page costs the same wherever it begins, however
-- many events there are and whatever is left out.
CREATE INDEX telemetry_events_session_id_idx ON telemetry_events (session_id, category, seq);
CREATE TABLE telemetry_events_other PARTITION OF telemetry_events DEFAULT;
