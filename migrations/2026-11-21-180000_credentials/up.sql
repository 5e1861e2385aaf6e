CREATE TABLE credentials (
    id uuid NOT NULL CONSTRAINT credentials_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT credentials_project_id_fkey REFERENCES projects (id),
    name text COLLATE name_ci NOT NULL,
    domain text NOT NULL,
    sso_provider text,
    -- Sealed, like the values, with a master key that is not in this database; bytes 2 to 9 are the key's id.
    sealed_totp bytea,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX credentials_project_id_idx ON credentials (project_id, created_at DESC, id DESC);
CREATE INDEX credentials_domain_idx ON credentials (project_id, domain);
CREATE UNIQUE INDEX credentials_name_key ON credentials (project_id, name);

CREATE TABLE credential_values (
    credential_id uuid NOT NULL
        CONSTRAINT credential_values_credential_id_fkey REFERENCES credentials (id) ON DELETE CASCADE,
    name text NOT NULL,
    sealed bytea NOT NULL,
    CONSTRAINT credential_values_pkey PRIMARY KEY (credential_id, name)
);
