-- The OTLP endpoints to which sessions of an organization export their events. A session, a pool or a ticket names its
-- destination in the column telemetry, as export:<id>; unstored there means that the events are only exported.
CREATE TABLE telemetry_destinations (
    id uuid NOT NULL CONSTRAINT telemetry_destinations_pkey PRIMARY KEY,
    organization_id uuid NOT NULL
        CONSTRAINT telemetry_destinations_organization_id_fkey REFERENCES organizations (id),
    name text COLLATE name_ci NOT NULL,
    description text,
    endpoint text NOT NULL,
    header_names text[] NOT NULL,
    -- Sealed with a master key that is not in this database; bytes 2 to 9 are the key's id.
    sealed_headers bytea NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    consecutive_failures integer NOT NULL,
    last_error text,
    last_error_at timestamptz,
    last_export_at timestamptz
);
CREATE INDEX telemetry_destinations_order_idx ON telemetry_destinations (organization_id, created_at, id);
CREATE UNIQUE INDEX telemetry_destinations_name_key ON telemetry_destinations (organization_id, name);

-- The last exported event of each session that has exported any.
CREATE TABLE telemetry_exports (
    session_id uuid NOT NULL CONSTRAINT telemetry_exports_pkey PRIMARY KEY
        CONSTRAINT telemetry_exports_session_id_fkey REFERENCES sessions (id),
    exported_seq bigint NOT NULL
);
