CREATE TABLE credential_providers (
    id uuid NOT NULL CONSTRAINT credential_providers_pkey PRIMARY KEY,
    organization_id uuid NOT NULL
        CONSTRAINT credential_providers_organization_id_fkey REFERENCES organizations (id),
    name text COLLATE name_ci NOT NULL,
    type text NOT NULL,
    server_url text,
    vault text,
    -- Sealed with a master key that is not in this database; bytes 2 to 9 are the key's id.
    sealed_token bytea NOT NULL,
    cache_ttl_seconds integer NOT NULL,
    enabled boolean NOT NULL,
    priority integer NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX credential_providers_order_idx ON credential_providers (organization_id, priority, created_at, id);
CREATE UNIQUE INDEX credential_providers_name_key ON credential_providers (organization_id, name);
