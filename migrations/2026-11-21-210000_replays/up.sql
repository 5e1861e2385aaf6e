-- The replays, stored before they begin. While a session runs, its agent has their state; at its end each becomes
-- finished, with its video in the blob store, or failed. A replay that does not run and has a size has a stored video.
CREATE TABLE replays (
    id uuid NOT NULL CONSTRAINT replays_pkey PRIMARY KEY,
    session_id uuid NOT NULL CONSTRAINT replays_session_id_fkey REFERENCES sessions (id),
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    state text NOT NULL CONSTRAINT replays_state_check CHECK (state IN ('running', 'finished', 'failed')),
    size_bytes bigint NOT NULL CONSTRAINT replays_size_bytes_check CHECK (size_bytes >= 0),
    detail text,
    CONSTRAINT replays_finished_check CHECK ((state = 'running') = (finished_at IS NULL))
);
CREATE INDEX replays_session_id_idx ON replays (session_id, started_at, id);
