DROP TABLE audit_destinations;
