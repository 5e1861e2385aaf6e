CREATE TABLE sessions (
    id uuid NOT NULL CONSTRAINT sessions_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT sessions_project_id_fkey REFERENCES projects (id),
    node_id uuid NOT NULL CONSTRAINT sessions_node_id_fkey REFERENCES nodes (id),
    -- No foreign key: the browser's row is deleted before the session's.
    browser_id uuid,
    pool_id uuid CONSTRAINT sessions_pool_id_fkey REFERENCES browser_pools (id),
    pool_name text,
    headless boolean NOT NULL,
    stealth boolean NOT NULL,
    kiosk_mode boolean NOT NULL,
    viewport_width integer NOT NULL,
    viewport_height integer NOT NULL,
    viewport_refresh_rate integer NOT NULL,
    policy json,
    name text COLLATE name_ci,
    timeout_seconds integer NOT NULL,
    start_url text,
    tags jsonb NOT NULL,
    state text NOT NULL CONSTRAINT sessions_state_check CHECK (state IN ('starting', 'active', 'ended')),
    end_reason text,
    created_at timestamptz NOT NULL,
    last_active_at timestamptz NOT NULL,
    ended_at timestamptz,
    CONSTRAINT sessions_ended_check
        CHECK ((state = 'ended') = (end_reason IS NOT NULL) AND (state = 'ended') = (ended_at IS NOT NULL)),
    CONSTRAINT sessions_active_check CHECK (state <> 'active' OR browser_id IS NOT NULL)
);
CREATE INDEX sessions_project_id_idx ON sessions (project_id, created_at DESC, id DESC);
CREATE INDEX sessions_pool_id_idx ON sessions (pool_id);
CREATE INDEX sessions_node_id_idx ON sessions (node_id);
-- Most sessions have ended; the others are queried all the time.
CREATE INDEX sessions_living_node_idx ON sessions (node_id) WHERE state <> 'ended';
CREATE INDEX sessions_living_project_idx ON sessions (project_id) WHERE state <> 'ended';
CREATE UNIQUE INDEX sessions_name_key ON sessions (project_id, name) WHERE state <> 'ended';
-- A browser has at most one session that has not ended.
CREATE UNIQUE INDEX sessions_browser_key ON sessions (browser_id) WHERE state <> 'ended';
