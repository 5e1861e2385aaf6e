//! The routes `/audit-logs`: audit records, page by page or exported as files.

mod export;
mod handlers;
mod record;
mod trail;

pub(crate) use self::handlers::{
    __path_export_audit_chunk, __path_list_audit_records, export_audit_chunk, list_audit_records,
};
pub(crate) use self::trail::{Audited, Identity, TrustedProxies, begin, caller_ip, prepared_record, request_id};
