CREATE TABLE browsers (
    id uuid NOT NULL CONSTRAINT browsers_pkey PRIMARY KEY,
    node_id uuid NOT NULL CONSTRAINT browsers_node_id_fkey REFERENCES nodes (id),
    pool_id uuid CONSTRAINT browsers_pool_id_fkey REFERENCES browser_pools (id),
    headless boolean NOT NULL,
    stealth boolean NOT NULL,
    kiosk_mode boolean NOT NULL,
    viewport_width integer NOT NULL,
    viewport_height integer NOT NULL,
    viewport_refresh_rate integer NOT NULL,
    policy json,
    state text NOT NULL CONSTRAINT browsers_state_check CHECK (state IN ('warming', 'idle', 'leased', 'ending')),
    session_id uuid CONSTRAINT browsers_session_id_fkey REFERENCES sessions (id),
    created_at timestamptz NOT NULL,
    CONSTRAINT browsers_session_check
        CHECK (CASE state WHEN 'leased' THEN session_id IS NOT NULL WHEN 'ending' THEN true ELSE session_id IS NULL END)
);
CREATE INDEX browsers_node_id_idx ON browsers (node_id);
CREATE INDEX browsers_pool_id_idx ON browsers (pool_id, state, created_at, id);
CREATE UNIQUE INDEX browsers_session_key ON browsers (session_id);
