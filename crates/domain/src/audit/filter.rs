//! Which records are asked for.

use time::{Duration, OffsetDateTime};

use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};

/// The longest text to search for, in characters.
const MAX_SEARCH: usize = 256;
/// The longest value of another filter, in characters; no stored one is longer.
const MAX_VALUE: usize = 64;
/// The most methods left out, and the most users searched for.
const MAX_EXCLUDED: usize = 10;
const MAX_USERS: usize = 100;
/// The longest span that people page through.
const MAX_SPAN: Duration = Duration::days(30);

/// What is asked, as it came. Times are read already.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// From when on, inclusive.
    pub start: Option<OffsetDateTime>,
    /// Until when, exclusive.
    pub end: Option<OffsetDateTime>,
    /// Exactly this way of showing who calls.
    pub auth_strategy: Option<String>,
    /// Exactly this part of the service.
    pub service: Option<String>,
    /// Exactly this method, in any case.
    pub method: Option<String>,
    /// None of these methods.
    pub exclude_methods: Vec<String>,
    /// Substring of path, user, e-mail or address, in any case; or the status.
    pub search: Option<String>,
    /// Or one of these users.
    pub search_users: Vec<String>,
    /// At most so many records.
    pub limit: Option<i64>,
}

/// How the records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// By a person, page by page: at most 30 days, 1 to 100 records, 100 unless said.
    List,
    /// As a file: any span, 1 to 50,000 records, 50,000 unless said.
    Export,
}

impl Reading {
    const fn most(self) -> u32 {
        match self {
            Self::List => 100,
            Self::Export => 50_000,
        }
    }
}

/// Which records are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFilter {
    /// From when on, inclusive.
    pub start: OffsetDateTime,
    /// Until when, exclusive.
    pub end: OffsetDateTime,
    /// Exactly this way of showing who calls.
    pub auth_strategy: Option<String>,
    /// Exactly this part of the service.
    pub service: Option<String>,
    /// Exactly this method, in upper case.
    pub method: Option<String>,
    /// None of these methods, in upper case.
    pub exclude_methods: Vec<String>,
    /// Substring of path, user, e-mail or address, in any case; or the status.
    pub search: Option<String>,
    /// Or one of these users, in lower case.
    pub search_users: Vec<String>,
}

impl AuditQuery {
    /// The filter, and how many records at most.
    ///
    /// # Errors
    /// Every field that breaks a rule.
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
        let limit = fields.take_optional("limit", self.limit, |n| within(n, 1, reading.most()));
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
            // Nothing to look for is found everywhere.
            search: search.filter(|text| !text.is_empty()),
            search_users: lower(search_users.unwrap_or_default()),
        };
        Ok((filter, limit.unwrap_or(reading.most())))
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

fn few(texts: Vec<String>, most: usize) -> Result<Vec<String>, InvalidValue> {
    if texts.len() > most {
        return Err(InvalidValue::new(FieldCode::TooMany, format!("must have at most {most} items")));
    }
    texts.into_iter().enumerate().map(|(n, text)| value(text).map_err(|bad| bad.of(n))).collect()
}
