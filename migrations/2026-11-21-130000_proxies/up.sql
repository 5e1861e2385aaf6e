CREATE TABLE proxies (
    id uuid NOT NULL CONSTRAINT proxies_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT proxies_project_id_fkey REFERENCES projects (id),
    name text COLLATE name_ci,
    type text NOT NULL
        CONSTRAINT proxies_type_check CHECK (type IN ('datacenter', 'isp', 'residential', 'mobile', 'custom')),
    protocol text NOT NULL CONSTRAINT proxies_protocol_check CHECK (protocol IN ('http', 'https', 'socks5')),
    host text NOT NULL,
    port integer NOT NULL CONSTRAINT proxies_port_check CHECK (port BETWEEN 1 AND 65535),
    username text,
    -- Sealed with a master key that is not in this database; bytes 2 to 9 are the key's id.
    sealed_password bytea,
    bypass_hosts text[] NOT NULL,
    status text NOT NULL CONSTRAINT proxies_status_check CHECK (status IN ('available', 'unavailable')),
    last_checked timestamptz,
    ip_address text,
    -- The time at which a node last began to check the proxy.
    check_taken_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    -- A deleted proxy keeps its row, because sessions continue to use it.
    deleted_at timestamptz
);
CREATE INDEX proxies_project_id_idx ON proxies (project_id, created_at DESC, id DESC) WHERE deleted_at IS NULL;
CREATE INDEX proxies_name_idx ON proxies (project_id, name) WHERE deleted_at IS NULL;
CREATE INDEX proxies_check_taken_at_idx ON proxies (check_taken_at) WHERE deleted_at IS NULL;

-- The proxy of a browser's traffic. A proxy of a pool is not deleted, because storing a pool locks the proxy's row.
ALTER TABLE browser_pools ADD COLUMN proxy_id uuid;
ALTER TABLE sessions ADD COLUMN proxy_id uuid;
ALTER TABLE browsers ADD COLUMN proxy_id uuid;
CREATE INDEX browser_pools_proxy_id_idx ON browser_pools (proxy_id) WHERE deleted_at IS NULL AND proxy_id IS NOT NULL;
