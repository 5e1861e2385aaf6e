-- The buckets to which the audit records of an organization are exported continuously.
CREATE TABLE audit_destinations (
    id uuid NOT NULL CONSTRAINT audit_destinations_pkey PRIMARY KEY,
    organization_id uuid NOT NULL
        CONSTRAINT audit_destinations_organization_id_fkey REFERENCES organizations (id),
    bucket text NOT NULL,
    prefix text NOT NULL,
    region text NOT NULL,
    kms_key_id text,
    status text NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- The last exported record, or the beginning of the export; null until the first activation.
    exported_at timestamptz,
    exported_id uuid,
    -- The last record of the object that is being written. It is stored before the object, so that a repetition writes
    -- the same object.
    planned_at timestamptz,
    planned_id uuid,
    -- The node that exports, and until when other nodes leave the destination to it.
    claimed_by uuid,
    claimed_until timestamptz,
    consecutive_failures integer NOT NULL,
    last_error text,
    last_error_at timestamptz,
    last_success_at timestamptz,
    next_attempt_at timestamptz
);
CREATE INDEX audit_destinations_order_idx ON audit_destinations (organization_id, created_at, id);
