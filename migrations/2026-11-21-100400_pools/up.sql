CREATE TABLE browser_pools (
    id uuid NOT NULL CONSTRAINT browser_pools_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT browser_pools_project_id_fkey REFERENCES projects (id),
    name text COLLATE name_ci,
    size integer NOT NULL CONSTRAINT browser_pools_size_check CHECK (size >= 1),
    fill_rate_per_minute integer NOT NULL,
    timeout_seconds integer NOT NULL,
    headless boolean NOT NULL,
    stealth boolean NOT NULL,
    kiosk_mode boolean NOT NULL,
    viewport_width integer NOT NULL,
    viewport_height integer NOT NULL,
    viewport_refresh_rate integer NOT NULL,
    policy json,
    start_url text,
    allowance integer NOT NULL CONSTRAINT browser_pools_allowance_check CHECK (allowance >= 0),
    growth_since timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- A deleted pool keeps its row, because sessions refer to it.
    deleted_at timestamptz,
    lease_node_id uuid CONSTRAINT browser_pools_lease_node_id_fkey REFERENCES nodes (id),
    lease_until timestamptz,
    lease_fence bigint NOT NULL
);
CREATE INDEX browser_pools_project_id_idx ON browser_pools (project_id);
CREATE INDEX browser_pools_lease_node_id_idx ON browser_pools (lease_node_id);
CREATE UNIQUE INDEX browser_pools_name_key ON browser_pools (project_id, name) WHERE deleted_at IS NULL;
