DROP INDEX audit_records_rare_service_idx;
DROP INDEX audit_records_rare_strategy_idx;
DROP INDEX audit_records_rare_method_idx;
DROP INDEX audit_records_organization_id_idx;
CREATE INDEX audit_records_organization_id_idx ON audit_records (organization_id, at DESC, id DESC);
