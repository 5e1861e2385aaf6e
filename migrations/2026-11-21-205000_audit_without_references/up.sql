-- Rows of organizations and projects are never deleted, so the foreign keys are not needed, and checking both is a
-- third of the cost of a record. The index was only needed by a foreign key.
ALTER TABLE audit_records
    DROP CONSTRAINT audit_records_organization_id_fkey,
    DROP CONSTRAINT audit_records_project_id_fkey;
DROP INDEX audit_records_project_id_idx;
