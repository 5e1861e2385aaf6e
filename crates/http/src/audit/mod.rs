//! The routes `/audit-logs`: audit records, page by page or exported as files.

mod export;
mod handlers;
mod record;
mod trail;

pub use self::record::write_line;
pub(crate) use self::trail::{
    Audited, Identity, TrustedProxies, begin, caller_ip, may_change, prepared_record, request_id,
};
use self::{
    handlers::{AuditPageParams, AuditParams, ExportParams},
    record::AuditRecordBody,
};
use crate::operation::{BYTES, Operations};

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Audit logs", "The audit record does not exist");
    api.get("/audit-logs", "list_audit_records", handlers::list_audit_records)
        .summary("Lists audit records, newest first.")
        .description(
            "The record of a call that changes something is stored before the response is sent. If the server is killed before it \
             responds, the record has the status 0: the change may have been made. The record of a call that only reads is stored just \
             after the response, mostly within 20 ms; if the server is killed in between, that record is missing.",
        )
        .query::<AuditParams>()
        .query::<AuditPageParams>()
        .returns_list::<AuditRecordBody>()
        .header::<String>("X-Has-More", "Whether there is a next page")
        .header::<String>("X-Next-Page-Token", "The `page_token` of the next page")
        .refuses([("400", "A parameter breaks a rule, or the token belongs to another query")]);
    api.get("/audit-logs/export/chunk", "export_audit_chunk", handlers::export_audit_chunk)
        .summary("Exports a chunk of audit records as a file, newest first.")
        .description(
            "The header `X-Range-End` of the first chunk is the moment at which the exported range ends, exclusive: `end`, or an earlier \
             moment if `end` is in the future. No record from before that moment is added any more, so the next export may start \
             there. A past range is exported as a whole, or refused with 503 while records of it wait to be stored. The list says which \
             calls are recorded when.",
        )
        .query::<AuditParams>()
        .query::<ExportParams>()
        .content::<Vec<u8>>("200", BYTES, "One record per line")
        .header::<String>("X-Next-Cursor", "The `cursor` of the next chunk, of older records; absent at the end")
        .header::<bool>("X-Has-More", "Whether there is a next chunk")
        .header::<u32>("X-Row-Count", "The number of records in the chunk")
        .header::<u32>("X-Record-Count", "The same number")
        .header::<String>("X-Content-Sha256", "The SHA-256 of the body, in lower-case hexadecimal")
        .header::<String>("X-Range-End", "In the first chunk: the exclusive end of the exported range, where the next export may start")
        .refuses([("400", "A parameter breaks a rule, or the cursor belongs to another query")]);
}
