DROP TABLE telemetry_exports;
DROP TABLE telemetry_destinations;
