-- The collation of unique names: ignores case and accents.
CREATE COLLATION name_ci (provider = icu, locale = 'und-u-ks-level1', deterministic = false);

CREATE TABLE organizations (
    id uuid NOT NULL CONSTRAINT organizations_pkey PRIMARY KEY,
    name text NOT NULL,
    max_concurrent_sessions integer CONSTRAINT organizations_sessions_check CHECK (max_concurrent_sessions >= 0),
    max_pooled_sessions integer CONSTRAINT organizations_pooled_check CHECK (max_pooled_sessions >= 0),
    max_concurrent_invocations integer CONSTRAINT organizations_invocations_check CHECK (max_concurrent_invocations >= 0),
    default_project_max_concurrent_sessions integer
        CONSTRAINT organizations_default_sessions_check CHECK (default_project_max_concurrent_sessions >= 0),
    created_at timestamptz NOT NULL
);

CREATE TABLE users (
    id uuid NOT NULL CONSTRAINT users_pkey PRIMARY KEY,
    organization_id uuid NOT NULL CONSTRAINT users_organization_id_fkey REFERENCES organizations (id),
    email text NOT NULL,
    name text
);
CREATE INDEX users_organization_id_idx ON users (organization_id);
