//! The filter of audit records.

use time::{Duration, OffsetDateTime};

use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};

/// The maximum length of a searched text, in characters.
pub const MAX_SEARCH: usize = 256;
/// The maximum length of another filter value, in characters; stored values are not longer.
pub const MAX_VALUE: usize = 64;
/// The maximum numbers of excluded methods and of searched users.
pub const MAX_EXCLUDED: usize = 10;
/// The maximum number of users in `search_user_id`.
pub const MAX_USERS: usize = 100;
/// The maximum time span of a list.
const MAX_SPAN: Duration = Duration::days(30);

/// An unchecked query of records, with parsed times.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// The start, inclusive.
    pub start: Option<OffsetDateTime>,
    /// The end, exclusive.
    pub end: Option<OffsetDateTime>,
    /// The way of authentication.
    pub auth_strategy: Option<String>,
    /// The part of the service.
    pub service: Option<String>,
    /// The method, in any case.
    pub method: Option<String>,
    /// The excluded methods.
    pub exclude_methods: Vec<String>,
    /// A part of the path, user, e-mail or IP address, in any case; or the status.
    pub search: Option<String>,
    /// Users that match as well.
    pub search_users: Vec<String>,
    /// The maximum number of records.
    pub limit: Option<i64>,
}

/// The way of reading records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Page by page: at most 30 days, 1 to 100 records, by default 100.
    List,
    /// As a file: any time span, 1 to 50,000 records, by default 50,000.
    Export,
}

impl Reading {
    /// Returns the maximum number of records of one response.
    #[must_use]
    pub const fn max(self) -> u32 {
        match self {
            Self::List => 100,
            Self::Export => 50_000,
        }
    }
}

/// A checked filter of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFilter {
    /// The start, inclusive.
    pub start: OffsetDateTime,
    /// The end, exclusive.
    pub end: OffsetDateTime,
    /// The way of authentication.
    pub auth_strategy: Option<String>,
    /// The part of the service.
    pub service: Option<String>,
    /// The method, in upper case.
    pub method: Option<String>,
    /// The excluded methods, in upper case.
    pub exclude_methods: Vec<String>,
    /// A part of the path, user, e-mail or IP address, in any case; or the status.
    pub search: Option<String>,
    /// Users that match as well, in lower case.
    pub search_users: Vec<String>,
}

impl AuditQuery {
    /// Checks the query; returns the filter and the maximum number of records.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn parse(self, reading: Reading) -> Result<(AuditFilter, u32), InvalidInput> {
        let mut fields = Fields::new();
        let start = fields.take_required("start", self.start, Ok);
        let end = fields.take_required("end", self.end, Ok);
        if let (Some(start), Some(end)) = (start, end)
            && let Err(bad) = span(start, end, reading)
        {
            fields.refuse("end", bad);
        }
        let auth_strategy = fields.take_optional("auth_strategy", self.auth_strategy, value);
        let service = fields.take_optional("service", self.service, value);
        let method = fields.take_optional("method", self.method, value).map(|text| text.to_ascii_uppercase());
        let exclude_methods = fields.take("exclude_method", few(self.exclude_methods, MAX_EXCLUDED));
        let search = fields.take_optional("search", self.search, |text| no_longer(text, MAX_SEARCH));
        let search_users = fields.take("search_user_id", few(self.search_users, MAX_USERS));
        let limit = fields.take_optional("limit", self.limit, |n| within(n, 1, reading.max()));
        fields.finish()?;
        let (Some(start), Some(end)) = (start, end) else { unreachable!("refused above") };
        let upper = |texts: Vec<String>| texts.into_iter().map(|text| text.to_ascii_uppercase()).collect();
        let lower = |texts: Vec<String>| texts.into_iter().map(|text| text.to_ascii_lowercase()).collect();
        let filter = AuditFilter {
            start,
            end,
            auth_strategy,
            service,
            method,
            exclude_methods: upper(exclude_methods.unwrap_or_default()),
            // An empty text matches every record.
            search: search.filter(|text| !text.is_empty()),
            search_users: lower(search_users.unwrap_or_default()),
        };
        Ok((filter, limit.unwrap_or(reading.max())))
    }
}

fn span(start: OffsetDateTime, end: OffsetDateTime, reading: Reading) -> Result<(), InvalidValue> {
    if end <= start {
        return Err(InvalidValue::new(FieldCode::OutOfRange, "must be after start"));
    }
    if reading == Reading::List && end - start > MAX_SPAN {
        return Err(InvalidValue::new(FieldCode::OutOfRange, "must be at most 30 days after start"));
    }
    Ok(())
}

fn value(text: String) -> Result<String, InvalidValue> {
    no_longer(text, MAX_VALUE)
}

fn no_longer(text: String, longest: usize) -> Result<String, InvalidValue> {
    match text.chars().nth(longest) {
        Some(_) => Err(InvalidValue::new(FieldCode::TooLong, format!("must be at most {longest} characters"))),
        None => Ok(text),
    }
}

fn few(texts: Vec<String>, max: usize) -> Result<Vec<String>, InvalidValue> {
    if texts.len() > max {
        return Err(InvalidValue::new(FieldCode::TooMany, format!("must have at most {max} items")));
    }
    texts.into_iter().enumerate().map(|(n, text)| value(text).map_err(|bad| bad.of(n))).collect()
}
