CREATE TABLE auth_connections (
    id uuid NOT NULL CONSTRAINT auth_connections_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT auth_connections_project_id_fkey REFERENCES projects (id),
    -- Neither is deleted while a connection refers to it, because storing a connection locks its row.
    profile_id uuid NOT NULL CONSTRAINT auth_connections_profile_id_fkey REFERENCES profiles (id),
    proxy_id uuid CONSTRAINT auth_connections_proxy_id_fkey REFERENCES proxies (id),
    domain text NOT NULL,
    status text NOT NULL CONSTRAINT auth_connections_status_check CHECK (status IN ('AUTHENTICATED', 'NEEDS_AUTH')),
    allowed_domains text[] NOT NULL,
    auto_reauth boolean NOT NULL,
    health_checks boolean NOT NULL,
    health_check_interval_seconds integer NOT NULL,
    record_session boolean NOT NULL,
    save_credentials boolean NOT NULL,
    -- A credential of the project, which may be deleted; or a provider with the path of an item, or without a path for
    -- the item of the domain.
    credential_name text COLLATE name_ci,
    credential_provider text COLLATE name_ci,
    credential_path text,
    login_url text,
    -- The values that the last successful login requested; null if no login succeeded.
    needs text[],
    last_check_at timestamptz,
    -- The time at which a node last began a health check, or of the last login.
    check_taken_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT auth_connections_credential_check
        CHECK ((credential_name IS NULL OR credential_provider IS NULL) AND (credential_path IS NULL OR credential_provider IS NOT NULL))
);
CREATE INDEX auth_connections_project_id_idx ON auth_connections (project_id, created_at DESC, id DESC);
CREATE UNIQUE INDEX auth_connections_profile_id_domain_key ON auth_connections (profile_id, domain);
CREATE INDEX auth_connections_proxy_id_idx ON auth_connections (proxy_id) WHERE proxy_id IS NOT NULL;
CREATE INDEX auth_connections_credential_provider_idx ON auth_connections (credential_provider)
    WHERE credential_provider IS NOT NULL;
CREATE INDEX auth_connections_check_taken_at_idx ON auth_connections (check_taken_at)
    WHERE health_checks AND status = 'AUTHENTICATED';

-- The login flows and health checks.
CREATE TABLE auth_flows (
    id uuid NOT NULL CONSTRAINT auth_flows_pkey PRIMARY KEY,
    -- No foreign key: a flow is kept until its browser has ended, which may be after its connection was deleted.
    connection_id uuid NOT NULL,
    kind text NOT NULL CONSTRAINT auth_flows_kind_check CHECK (kind IN ('LOGIN', 'REAUTH', 'HEALTH_CHECK')),
    status text NOT NULL CONSTRAINT auth_flows_status_check
        CHECK (status IN ('IN_PROGRESS', 'SUCCESS', 'FAILED', 'EXPIRED', 'CANCELED')),
    step text NOT NULL CONSTRAINT auth_flows_step_check
        CHECK (step IN ('DISCOVERING', 'AWAITING_INPUT', 'AWAITING_EXTERNAL_ACTION', 'SUBMITTING', 'COMPLETED')),
    -- Rises with each write; a write succeeds only with the current revision.
    revision bigint NOT NULL,
    -- The node that runs the flow.
    node_id uuid CONSTRAINT auth_flows_node_id_fkey REFERENCES nodes (id),
    -- The id of the session, assigned before the session exists, so no foreign key; and true if the session may have to
    -- be ended.
    session_id uuid NOT NULL,
    open boolean NOT NULL,
    -- The fields that no query reads: the awaited input, the site's messages, the progress.
    details json NOT NULL,
    -- Sealed with a master key that is not in this database: the submitted values that are not typed yet, the typed
    -- values, the code of the page.
    submission bytea,
    entered bytea,
    handoff bytea,
    -- The SHA-256 of the value of the page's cookie.
    page_key bytea,
    expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX auth_flows_connection_id_idx ON auth_flows (connection_id, created_at DESC, id DESC);
-- At most one login and one health check at a time.
CREATE UNIQUE INDEX auth_flows_login_key ON auth_flows (connection_id) WHERE status = 'IN_PROGRESS' AND kind <> 'HEALTH_CHECK';
CREATE UNIQUE INDEX auth_flows_look_key ON auth_flows (connection_id) WHERE status = 'IN_PROGRESS' AND kind = 'HEALTH_CHECK';
CREATE INDEX auth_flows_node_id_idx ON auth_flows (node_id);
CREATE INDEX auth_flows_undone_idx ON auth_flows (id) WHERE status = 'IN_PROGRESS' OR open;
CREATE INDEX auth_flows_updated_at_idx ON auth_flows (updated_at) WHERE status <> 'IN_PROGRESS';
