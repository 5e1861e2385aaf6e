-- The calls of silent nodes that another node has recorded as unknown, for a day. A node that returns completes these
-- records, and stores no second one.
CREATE TABLE audit_records_recovered (
    id uuid CONSTRAINT audit_records_recovered_pkey PRIMARY KEY,
    at timestamptz NOT NULL
);
CREATE INDEX audit_records_recovered_at_idx ON audit_records_recovered (at);
