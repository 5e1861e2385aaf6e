//! Requests that concern audit destinations, and their checks.

use super::{AuditExportOffer, AuditExportStatus, BucketTarget};
use crate::field::{FieldCode, Fields, InvalidValue, check_length, check_max_length, one_of};
use crate::not_supported::NotSupported;
use crate::session::Refusal;

/// The pattern of prefixes.
pub const PREFIX_PATTERN: &str = "^([A-Za-z0-9_=-][A-Za-z0-9_.=-]*/)*([A-Za-z0-9_=-][A-Za-z0-9_.=-]*)?$";
/// The pattern of regions.
pub const REGION_PATTERN: &str = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$";
/// The pattern of the names of keys; empty for none.
pub const KEY_PATTERN: &str = "^[A-Za-z0-9:/_-]*$";
/// The maximum number of characters of a prefix.
pub const MAX_PREFIX: usize = 512;
/// The maximum number of characters of a region.
pub const MAX_REGION: usize = 64;
/// The maximum number of characters of the name of a key.
pub const MAX_KEY: usize = 2048;

/// The unchecked fields of a new destination.
#[derive(Clone, Debug, Default)]
pub struct AuditDestinationRequest {
    /// The kind of the store: `s3`; required.
    pub kind: Option<String>,
    /// The format of the objects: `jsonl.gz`; required.
    pub format: Option<String>,
    /// The bucket, which the operator offers; required.
    pub bucket: Option<String>,
    /// The beginning of the names of the objects; required, may be empty.
    pub prefix: Option<String>,
    /// The region of the bucket; required.
    pub region: Option<String>,
    /// The role of the keys. Default: that of the operator, which is the only one.
    pub role_arn: Option<String>,
    /// The key with which the store encrypts. Default: as the bucket is configured.
    pub kms_key_id: Option<String>,
}

/// The unchecked changes of a destination; an absent field stays unchanged.
#[derive(Clone, Debug, Default)]
pub struct AuditDestinationUpdateRequest {
    /// The new bucket.
    pub bucket: Option<String>,
    /// The new beginning of the names of the objects.
    pub prefix: Option<String>,
    /// The new region.
    pub region: Option<String>,
    /// The role of the keys, which is that of the operator.
    pub role_arn: Option<String>,
    /// The new key with which the store encrypts; an empty one removes it.
    pub kms_key_id: Option<String>,
    /// Whether the destination receives records.
    pub status: Option<String>,
}

/// The checked changes of a destination.
pub(super) struct Changes {
    pub(super) target: BucketTarget,
    pub(super) status: Option<AuditExportStatus>,
}

impl AuditDestinationRequest {
    pub(super) fn parse(self, offer: &AuditExportOffer) -> Result<BucketTarget, Refusal> {
        check_role(self.role_arn.as_deref(), offer)?;
        let mut fields = Fields::new();
        fields.take_required("type", self.kind, |kind| only(&kind, "s3"));
        fields.take_required("format", self.format, |format| only(&format, "jsonl.gz"));
        let bucket = fields.take_required("bucket", self.bucket, |bucket| offered(bucket, offer));
        let prefix = fields.take_required("prefix", self.prefix, |text| prefix(&text));
        let region = fields.take_required("region", self.region, region);
        let kms_key_id = fields.take_optional("kms_key_id", self.kms_key_id, key).flatten();
        let target = || Some(BucketTarget { bucket: bucket?, prefix: prefix?, region: region?, kms_key_id });
        Ok(fields.finish_with(target)?)
    }
}

impl AuditDestinationUpdateRequest {
    /// Checks the changes of a destination with this target.
    pub(super) fn parse(self, current: BucketTarget, offer: &AuditExportOffer) -> Result<Changes, Refusal> {
        check_role(self.role_arn.as_deref(), offer)?;
        let mut fields = Fields::new();
        let bucket = fields.take_optional("bucket", self.bucket, |bucket| offered(bucket, offer));
        let prefix = fields.take_optional("prefix", self.prefix, |text| prefix(&text));
        let region = fields.take_optional("region", self.region, region);
        let kms_key_id = fields.take_optional("kms_key_id", self.kms_key_id, key);
        let status = fields.take_optional("status", self.status, |status| {
            one_of(&status, &AuditExportStatus::ALL, AuditExportStatus::as_str)
        });
        fields.finish()?;
        let target = BucketTarget {
            bucket: bucket.unwrap_or(current.bucket),
            prefix: prefix.unwrap_or(current.prefix),
            region: region.unwrap_or(current.region),
            kms_key_id: kms_key_id.unwrap_or(current.kms_key_id),
        };
        Ok(Changes { target, status })
    }

    /// Returns whether the request does no more than to pause.
    pub(super) fn only_pauses(&self) -> bool {
        let Self { bucket, prefix, region, role_arn, kms_key_id, status } = self;
        let others = [bucket, prefix, region, role_arn, kms_key_id];
        others.iter().all(|field| field.is_none()) && status.as_deref() == Some(AuditExportStatus::Paused.as_str())
    }
}

/// Refuses another role than that of the operator: only the keys of the operator are used.
fn check_role(role: Option<&str>, offer: &AuditExportOffer) -> Result<(), NotSupported> {
    match role {
        Some(role) if role != offer.role => {
            let why = format!(
                "records are exported with the keys of the operator, whose role is {}; no other role is assumed",
                offer.role
            );
            Err(NotSupported { field: "role_arn", why: why.into() })
        }
        _ => Ok(()),
    }
}

fn only(text: &str, value: &'static str) -> Result<(), InvalidValue> {
    one_of(text, &[value], |value| value).map(drop)
}

fn offered(bucket: String, offer: &AuditExportOffer) -> Result<String, InvalidValue> {
    if offer.buckets.contains(&bucket) {
        return Ok(bucket);
    }
    let rule = "must be a bucket that the operator offers with --audit-export-bucket";
    Err(InvalidValue::new(FieldCode::NotAllowed, rule))
}

/// Parses a prefix; one slash at the end is removed.
fn prefix(text: &str) -> Result<String, InvalidValue> {
    check_max_length(text, MAX_PREFIX)?;
    let prefix = text.strip_suffix('/').unwrap_or(text);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.=-".contains(&byte);
    let good = |part: &str| !part.is_empty() && part.bytes().all(plain) && !part.starts_with('.');
    if !text.is_empty() && !prefix.split('/').all(good) {
        let rule = "must be names of ASCII letters, digits, _, ., = and -, not beginning with a point, with a slash between them";
        return Err(InvalidValue::new(FieldCode::InvalidFormat, rule));
    }
    Ok(prefix.to_owned())
}

/// Checks a region, which becomes a part of the host name at AWS.
fn region(text: String) -> Result<String, InvalidValue> {
    check_length(&text, MAX_REGION)?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !text.bytes().all(plain) || text.starts_with('-') || text.ends_with('-') {
        let rule = "must be the name of a region, such as eu-central-1";
        return Err(InvalidValue::new(FieldCode::InvalidFormat, rule));
    }
    Ok(text)
}

/// Parses the id, the alias or the ARN of a key; an empty text is none.
fn key(text: String) -> Result<Option<String>, InvalidValue> {
    check_max_length(&text, MAX_KEY)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b":/_-".contains(&byte);
    if !text.bytes().all(plain) {
        let rule = "must be the id, the alias or the ARN of a key";
        return Err(InvalidValue::new(FieldCode::InvalidFormat, rule));
    }
    Ok(Some(text).filter(|text| !text.is_empty()))
}

impl AuditExportOffer {
    /// Returns the refusal of a server whose operator offers no bucket.
    pub(super) fn missing() -> NotSupported {
        let why = "this server exports audit records to no bucket; its operator sets --audit-export-bucket, \
                   AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
        NotSupported { field: "bucket", why: why.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> AuditExportOffer {
        AuditExportOffer { buckets: vec!["ours".to_owned()], role: "operator".to_owned() }
    }

    fn request() -> AuditDestinationRequest {
        let text = |text: &str| Some(text.to_owned());
        AuditDestinationRequest {
            kind: text("s3"),
            format: text("jsonl.gz"),
            bucket: text("ours"),
            prefix: text("trail/casement/"),
            region: text("eu-central-1"),
            role_arn: text("operator"),
            kms_key_id: None,
        }
    }

    fn refused(request: AuditDestinationRequest) -> String {
        match request.parse(&offer()) {
            Err(Refusal::Invalid(invalid)) => {
                invalid.fields().iter().map(|one| one.field.clone()).collect::<Vec<_>>().join(" ")
            }
            Err(Refusal::NotSupported(refusal)) => format!("not supported {}", refusal.field),
            Ok(target) => panic!("{target:?}"),
        }
    }

    #[test]
    fn only_the_buckets_and_the_role_of_the_operator_are_accepted() {
        let target = request().parse(&offer()).expect("a target");
        assert_eq!((&*target.bucket, &*target.prefix), ("ours", "trail/casement"));
        assert!(AuditDestinationRequest { role_arn: None, ..request() }.parse(&offer()).is_ok());
        assert_eq!(refused(AuditDestinationRequest { bucket: Some("theirs".to_owned()), ..request() }), "bucket");
        let other = Some("arn:aws:iam::1:role/x".to_owned());
        assert_eq!(refused(AuditDestinationRequest { role_arn: other, ..request() }), "not supported role_arn");
        assert_eq!(refused(AuditDestinationRequest::default()), "type format bucket prefix region");
    }

    #[test]
    fn a_region_a_prefix_or_a_key_cannot_change_the_request_to_the_store() {
        for region in ["", "evil.example/x", "EU", "a@b", "-a", &"a".repeat(65)] {
            assert_eq!(refused(AuditDestinationRequest { region: Some(region.to_owned()), ..request() }), "region");
        }
        for prefix in ["/", "/a", "a//b", ".a", "..", "a/../b", "a b", "a?b", "a%2f", &"a".repeat(513)] {
            assert_eq!(refused(AuditDestinationRequest { prefix: Some(prefix.to_owned()), ..request() }), "prefix");
        }
        for key in ["a\r\nb", "a b", "ä", &"a".repeat(2049)] {
            let request = AuditDestinationRequest { kms_key_id: Some(key.to_owned()), ..request() };
            assert_eq!(refused(request), "kms_key_id");
        }
    }

    #[test]
    fn changes_keep_what_they_do_not_name_and_an_empty_key_removes_it() {
        let stored =
            BucketTarget { kms_key_id: Some("alias/a".to_owned()), ..request().parse(&offer()).expect("valid") };
        let unchanged = AuditDestinationUpdateRequest::default().parse(stored.clone(), &offer()).expect("valid");
        assert_eq!((unchanged.target, unchanged.status), (stored.clone(), None));
        let status = Some("active".to_owned());
        let update = AuditDestinationUpdateRequest { kms_key_id: Some(String::new()), status, ..Default::default() };
        let changed = update.parse(stored.clone(), &offer()).expect("valid");
        assert_eq!(changed.target, BucketTarget { kms_key_id: None, ..stored });
        assert_eq!(changed.status, Some(AuditExportStatus::Active));
    }
}
