-- Recordings, noted before they begin. The machine of a session says how they are as long as it lives; at its end each is settled:
-- its film is kept elsewhere, or it failed. What is not running and has bytes is kept.
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
