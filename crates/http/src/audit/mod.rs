//! `/audit-logs`: who called what. For people page by page, for machines as files.

mod export;
mod handlers;
mod record;
mod trail;

pub(crate) use self::handlers::{
    __path_export_audit_chunk, __path_list_audit_records, export_audit_chunk, list_audit_records,
};
pub(crate) use self::trail::{Audited, Identity, TrustedProxies, begin, caller_ip, early_record, request_id};
