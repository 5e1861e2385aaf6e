CREATE INDEX audit_records_project_id_idx ON audit_records (project_id);
ALTER TABLE audit_records
    ADD CONSTRAINT audit_records_organization_id_fkey FOREIGN KEY (organization_id) REFERENCES organizations (id),
    ADD CONSTRAINT audit_records_project_id_fkey FOREIGN KEY (project_id) REFERENCES projects (id);
