//! The requested location of the exit of a rented proxy.

use super::ProxyType;
use crate::field::{FieldCode, Fields, InvalidValue};
use crate::text_enum::text_enum;

text_enum! {
    /// A property by which an exit can be selected.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ExitMember {
        /// The country.
        Country => "country",
        /// The state.
        State => "state",
        /// The city.
        City => "city",
        /// The postal code.
        Zip => "zip",
        /// The autonomous system.
        Asn => "asn",
        /// The operating system of the exit.
        Os => "os",
    }
}

impl ExitMember {
    /// Returns the properties that proxies of this type can be selected by.
    pub(super) fn of(kind: ProxyType) -> &'static [Self] {
        match kind {
            ProxyType::Datacenter | ProxyType::Isp => &[Self::Country],
            ProxyType::Mobile => &[Self::Country, Self::State, Self::City],
            ProxyType::Residential => &Self::ALL,
            ProxyType::Custom => &[],
        }
    }
}

/// The requested location of the exit of a rented proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// The country: ISO 3166-1 alpha-2 in upper case.
    pub country: Option<String>,
    /// The state: two letters in upper case.
    pub state: Option<String>,
    /// The city, in lower case and without blanks.
    pub city: Option<String>,
    /// The postal code: five digits.
    pub zip: Option<String>,
    /// The autonomous system: `AS` and a number.
    pub asn: Option<String>,
    /// The operating system: `windows`, `macos` or `android`.
    pub os: Option<String>,
}

impl Exit {
    /// Returns the value of a property.
    #[must_use]
    pub fn get(&self, member: ExitMember) -> Option<&str> {
        match member {
            ExitMember::Country => self.country.as_deref(),
            ExitMember::State => self.state.as_deref(),
            ExitMember::City => self.city.as_deref(),
            ExitMember::Zip => self.zip.as_deref(),
            ExitMember::Asn => self.asn.as_deref(),
            ExitMember::Os => self.os.as_deref(),
        }
    }

    /// Checks the request for a proxy of this type.
    pub(super) fn parse(&self, kind: ProxyType, fields: &mut Fields) -> Self {
        for member in ExitMember::ALL {
            if self.get(member).is_some() && !ExitMember::of(kind).contains(&member) {
                let bad = InvalidValue::new(FieldCode::NotAllowed, "belongs to another type of proxy");
                fields.refuse(&format!("config.{}", member.as_str()), bad);
            }
        }
        let exit = Self {
            country: fields.take_optional("config.country", self.country.as_deref(), two_letters),
            state: fields.take_optional("config.state", self.state.as_deref(), two_letters),
            city: fields.take_optional("config.city", self.city.as_deref(), city),
            zip: fields.take_optional("config.zip", self.zip.as_deref(), zip),
            asn: fields.take_optional("config.asn", self.asn.as_deref(), asn),
            os: fields.take_optional("config.os", self.os.as_deref(), os),
        };
        if self.city.is_some() && self.country.is_none() {
            fields.refuse("config.country", InvalidValue::new(FieldCode::Required, "is required beside a city"));
        }
        exit
    }
}

fn form(text: &str, good: bool, must: &'static str) -> Result<String, InvalidValue> {
    if good { Ok(text.to_owned()) } else { Err(InvalidValue::new(FieldCode::InvalidFormat, must)) }
}

/// The pattern of countries and states.
pub const TWO_LETTERS_PATTERN: &str = "^[A-Za-z]{2}$";
/// The pattern of cities.
pub const CITY_PATTERN: &str = "^[a-z0-9_-]{1,100}$";
/// The pattern of postal codes.
pub const ZIP_PATTERN: &str = "^[0-9]{5}$";
/// The pattern of autonomous systems.
pub const ASN_PATTERN: &str = "^([Aa][Ss])?[0-9]{1,10}$";

fn two_letters(text: &str) -> Result<String, InvalidValue> {
    let good = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    form(&text.to_ascii_uppercase(), good, "must be two letters")
}

fn city(text: &str) -> Result<String, InvalidValue> {
    if text.len() > 100 {
        return Err(InvalidValue::new(FieldCode::TooLong, "must have at most 100 characters"));
    }
    let good = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_'));
    form(text, good, "must be lower case letters without blanks")
}

fn zip(text: &str) -> Result<String, InvalidValue> {
    form(text, text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit()), "must be five digits")
}

fn asn(text: &str) -> Result<String, InvalidValue> {
    let number =
        text.get(..2).filter(|start| start.eq_ignore_ascii_case("as")).map_or(text, |start| &text[start.len()..]);
    let good = (1..=10).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    form(&format!("AS{number}"), good, "must be AS and a number")
}

fn os(text: &str) -> Result<String, InvalidValue> {
    match text {
        "windows" | "macos" | "android" => Ok(text.to_owned()),
        _ => Err(InvalidValue::new(FieldCode::NotAllowed, "must be one of windows, macos, android")),
    }
}
