//! The settings of the export of audit records to buckets.

use clap::Args;
use url::Url;

use super::values::{bucket_name, plain_url};

/// The buckets that callers may choose. The keys are the variables of AWS's own tools.
#[derive(Clone, Debug, Args)]
pub(crate) struct AuditExportSettings {
    /// A bucket to which callers may export audit records, with the keys of the variables AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; may be given several times [default: none]
    #[arg(
        long = "audit-export-bucket",
        value_name = "NAME",
        env = "CASEMENT_AUDIT_EXPORT_BUCKET",
        value_delimiter = ',',
        value_parser = bucket_name,
        action = clap::ArgAction::Append
    )]
    pub(crate) audit_export_buckets: Vec<String>,
    /// The URL of the S3-compatible store with the buckets [default: AWS, by the region of the bucket]
    #[arg(long, value_name = "URL", env = "CASEMENT_AUDIT_EXPORT_ENDPOINT", value_parser = plain_url)]
    pub(crate) audit_export_endpoint: Option<Url>,
    /// The role of the keys, which is the only one that callers may name
    #[arg(long, value_name = "ARN", env = "CASEMENT_AUDIT_EXPORT_ROLE", default_value = "operator")]
    pub(crate) audit_export_role: String,
    /// The seconds for which audit records collect before they are exported
    #[arg(long, value_name = "N", env = "CASEMENT_AUDIT_EXPORT_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub(crate) audit_export_seconds: u32,
}
