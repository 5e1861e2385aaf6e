//! The time zone and the locale that pages see.

use crate::field::{FieldCode, InvalidValue};

/// The names of time zones that Chromium knows, with their aliases.
const TIME_ZONES: &str = include_str!("time_zones.txt");
/// The locales for which Chromium has formats.
const LOCALES: &str = include_str!("locales.txt");

/// The name of a time zone in the IANA database, as `Europe/Berlin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeZone(&'static str);

impl TimeZone {
    /// The coordinated universal time.
    pub const UTC: Self = Self("UTC");

    /// Parses a name, regardless of case.
    ///
    /// # Errors
    /// `not_allowed` if there is no such time zone.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let known = find(TIME_ZONES, text).map(Self);
        known.ok_or_else(|| InvalidValue::new(FieldCode::NotAllowed, "must be an IANA time zone, as Europe/Berlin"))
    }

    /// Returns the name.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        self.0
    }
}

/// A locale as a canonical BCP 47 tag: a language, possibly a script and possibly a region, as `de-CH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Locale(&'static str);

impl Locale {
    /// The locale of browsers for which none is requested.
    pub const DEFAULT: Self = Self("en-US");

    /// Returns all locales.
    pub fn all() -> impl Iterator<Item = Self> {
        LOCALES.split_ascii_whitespace().map(Self)
    }

    /// Parses a tag, regardless of case.
    ///
    /// # Errors
    /// `not_allowed` if Chromium has no formats for the locale.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let known = find(LOCALES, text).map(Self);
        known.ok_or_else(|| InvalidValue::new(FieldCode::NotAllowed, "must be a supported BCP 47 tag, as de-CH"))
    }

    /// Returns the tag.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        self.0
    }
}

fn find(all: &'static str, text: &str) -> Option<&'static str> {
    all.split_ascii_whitespace().find(|known| known.eq_ignore_ascii_case(text))
}

/// The time zone and the locale of a browser, as far as they differ from the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location {
    /// The time zone; `None`: the installation's.
    pub time_zone: Option<TimeZone>,
    /// The locale; `None`: [`Locale::DEFAULT`].
    pub locale: Option<Locale>,
}

/// The unchecked change of a location. `None` leaves a member unchanged, `Some(None)` sets its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocationRequest {
    /// The time zone.
    pub time_zone: Option<Option<String>>,
    /// The locale.
    pub locale: Option<Option<String>>,
}

/// The checked change of a location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocationChange {
    time_zone: Option<Option<TimeZone>>,
    locale: Option<Option<Locale>>,
}

impl LocationRequest {
    /// Checks the request.
    ///
    /// # Errors
    /// `not_allowed` for each member that is not supported.
    pub fn parse(&self) -> Result<LocationChange, InvalidValue> {
        let time_zone = parse(self.time_zone.as_ref(), TimeZone::parse).map_err(|bad| bad.of("timezone"));
        let locale = parse(self.locale.as_ref(), Locale::parse).map_err(|bad| bad.of("locale"));
        match (time_zone, locale) {
            (Ok(time_zone), Ok(locale)) => Ok(LocationChange { time_zone, locale }),
            (time_zone, locale) => {
                InvalidValue::any([time_zone.err(), locale.err()].into_iter().flatten())?;
                unreachable!("one of the two is refused")
            }
        }
    }
}

fn parse<T>(
    member: Option<&Option<String>>,
    parse: impl Fn(&str) -> Result<T, InvalidValue>,
) -> Result<Option<Option<T>>, InvalidValue> {
    member.map(|text| text.as_deref().map(parse).transpose()).transpose()
}

impl LocationChange {
    /// Returns the location after the change.
    #[must_use]
    pub fn onto(self, location: Location) -> Location {
        Location {
            time_zone: self.time_zone.unwrap_or(location.time_zone),
            locale: self.locale.unwrap_or(location.locale),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_stored_in_their_own() {
        assert_eq!(TimeZone::parse("europe/BERLIN").map(|zone| zone.as_str()), Ok("Europe/Berlin"));
        assert_eq!(TimeZone::parse("UTC"), Ok(TimeZone::UTC));
        assert_eq!(Locale::parse("DE-ch").map(|locale| locale.as_str()), Ok("de-CH"));
        assert_eq!(Locale::parse("zh-Hant-TW").map(|locale| locale.as_str()), Ok("zh-Hant-TW"));
        assert_eq!(Locale::parse("en-US"), Ok(Locale::DEFAULT));
        assert_eq!(Locale::all().count(), 441);
    }

    #[test]
    fn unknown_names_are_refused_by_member() {
        let request = |zone: &str, locale: &str| LocationRequest {
            time_zone: Some(Some(zone.to_owned())),
            locale: Some(Some(locale.to_owned())),
        };
        for (zone, locale, refused) in [
            ("Mars/Olympus", "de", &["location.timezone"][..]),
            ("", "de", &["location.timezone"]),
            ("Europe/Berlin Europe/Paris", "de", &["location.timezone"]),
            ("UTC", "de_CH", &["location.locale"]),
            ("UTC", "xx", &["location.locale"]),
            ("+01:00", "", &["location.timezone", "location.locale"]),
        ] {
            let errors = request(zone, locale).parse().expect_err("refused").in_field("location");
            assert_eq!(errors.iter().map(|error| &*error.field).collect::<Vec<_>>(), refused, "{zone} {locale}");
        }
    }

    #[test]
    fn an_absent_member_stays_and_null_sets_the_default() {
        let before = Location { time_zone: TimeZone::parse("Asia/Tokyo").ok(), locale: Locale::parse("ja").ok() };
        let request = LocationRequest { time_zone: Some(None), locale: None };
        let after = request.parse().expect("valid").onto(before);
        assert_eq!(after, Location { time_zone: None, ..before });
        assert_eq!(LocationRequest::default().parse().expect("valid").onto(before), before);
    }
}
