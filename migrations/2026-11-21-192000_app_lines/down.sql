DROP TABLE app_line_counts;
DROP TABLE app_lines;
