//! Columns with values of the domain, and rows of such columns.
//!
//! A row is a diesel struct inside of [`row!`], whose fields have the names of the domain type. A field of type
//! `Column<T>` reads and writes a `T` of the domain; a value that the domain refuses is a diesel error, which names the
//! column.

use std::collections::BTreeSet;

use casement_domain::TelemetryDestinationId;
use casement_domain::browser::{BrowserPolicy, Locale, StartUrl, TimeZone};
use casement_domain::deployment::PackagePath;
use casement_domain::engine::EngineName;
use casement_domain::login_page::HostPattern;
use casement_domain::name::{LabelName, SlugName};
use casement_domain::proxy::{BypassHost, CaBundle};
use casement_domain::session::Tags;
use casement_domain::telemetry::{Capture, Category, Delivery};
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::pg::{Pg, PgValue};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types;
use serde_json::Value;
use time::OffsetDateTime;
use ulid::Ulid;
use url::Url;
use uuid::Uuid;

use crate::error::BadRow;

/// A value of the domain in one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, FromSqlRow, AsExpression)]
#[diesel(sql_type = sql_types::Uuid)]
#[diesel(sql_type = sql_types::Text)]
#[diesel(sql_type = sql_types::Integer)]
#[diesel(sql_type = sql_types::BigInt)]
#[diesel(sql_type = sql_types::Binary)]
#[diesel(sql_type = sql_types::Json)]
#[diesel(sql_type = sql_types::Jsonb)]
pub(crate) struct Column<T>(pub(crate) T);

/// A type that a [`Column`] can hold.
pub(crate) trait ColumnValue: Sized {
    /// The type that diesel reads and writes.
    type Raw;

    fn to_raw(&self) -> Self::Raw;

    /// Fails with the reason if the domain refuses the value.
    fn from_raw(raw: Self::Raw) -> Result<Self, String>;
}

macro_rules! sql_types {
    ($($type:ident),+) => {$(
        impl<T: ColumnValue<Raw: FromSql<sql_types::$type, Pg>>> FromSql<sql_types::$type, Pg> for Column<T> {
            fn from_sql(bytes: PgValue<'_>) -> deserialize::Result<Self> {
                Ok(Self(T::from_raw(T::Raw::from_sql(bytes)?)?))
            }
        }

        impl<T: ColumnValue<Raw: ToSql<sql_types::$type, Pg>> + std::fmt::Debug> ToSql<sql_types::$type, Pg> for Column<T> {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
                self.0.to_raw().to_sql(&mut out.reborrow())
            }
        }
    )+};
}
sql_types!(Uuid, Text, Integer, BigInt, Binary, Json, Jsonb);

/// Identifiers.
macro_rules! ids {
    ($($id:ident),+ $(,)?) => {$(
        impl ColumnValue for casement_domain::$id {
            type Raw = Uuid;

            fn to_raw(&self) -> Uuid {
                self.ulid().to_raw()
            }

            fn from_raw(raw: Uuid) -> Result<Self, String> {
                Ulid::from_raw(raw).map(Self::from_ulid)
            }
        }
    )+};
}
ids!(
    ApiKeyId,
    AppVersionId,
    AuditDestinationId,
    AuditRecordId,
    AuthConnectionId,
    AuthFlowId,
    BrowserId,
    CredentialId,
    CredentialProviderId,
    TelemetryDestinationId,
    DeploymentId,
    ExtensionId,
    InvocationId,
    NodeId,
    DatabaseId,
    BlobStoreId,
    NodeRunId,
    OrganizationId,
    PoolId,
    ProfileId,
    ProfileVersionId,
    ProjectId,
    ProxyId,
    ReplayId,
    SessionId,
    TicketId,
    UserId,
);

/// Enumerations, stored as their texts.
macro_rules! texts_of_enums {
    ($($module:ident::$name:ident),+ $(,)?) => {$(
        impl ColumnValue for casement_domain::$module::$name {
            type Raw = String;

            fn to_raw(&self) -> String {
                self.as_str().to_owned()
            }

            fn from_raw(raw: String) -> Result<Self, String> {
                Self::ALL.into_iter().find(|value| value.as_str() == raw).ok_or(raw)
            }
        }
    )+};
}
texts_of_enums!(
    audit::AuditService,
    audit::AuthStrategy,
    audit_destination::AuditExportStatus,
    auth_connection::ConnectionStatus,
    auth_connection::FlowError,
    auth_connection::FlowKind,
    auth_connection::FlowStatus,
    auth_connection::FlowStep,
    browser::BrowserState,
    credential::TotpAlgorithm,
    credential_provider::ProviderType,
    deployment::DeploymentStatus,
    invocation::InvocationStatus,
    login_page::ChoiceKind,
    login_page::FieldKind,
    login_page::InputKind,
    login_page::MfaKind,
    node::NodeState,
    project::ProjectStatus,
    proxy::ProxyFailure,
    proxy::ProxyProtocol,
    proxy::ProxyStatus,
    proxy::ProxyType,
    replay::ReplayState,
    session::EndReason,
    storage::StorageLimit,
    telemetry::EventCategory,
);

/// Texts that the domain parses.
macro_rules! parsed_texts {
    ($($name:ident),+) => {$(
        impl ColumnValue for $name {
            type Raw = String;

            fn to_raw(&self) -> String {
                self.as_str().to_owned()
            }

            fn from_raw(raw: String) -> Result<Self, String> {
                Self::parse(&raw).map_err(|bad| format!("{bad:?}"))
            }
        }
    )+};
}
parsed_texts!(BypassHost, CaBundle, EngineName, LabelName, Locale, PackagePath, SlugName, StartUrl, TimeZone, Url);

impl ColumnValue for HostPattern {
    type Raw = String;

    fn to_raw(&self) -> String {
        self.to_string()
    }

    fn from_raw(raw: String) -> Result<Self, String> {
        Self::parse(&raw).map_err(|bad| bad.to_string())
    }
}

/// Numbers whose bounds in the domain are far below those of their columns.
macro_rules! numbers {
    ($($number:ident in $raw:ident),+) => {$(
        impl ColumnValue for $number {
            type Raw = $raw;

            fn to_raw(&self) -> $raw {
                $raw::try_from(*self).unwrap_or($raw::MAX)
            }

            fn from_raw(raw: $raw) -> Result<Self, String> {
                Self::try_from(raw).map_err(|_| raw.to_string())
            }
        }
    )+};
}
numbers!(u16 in i32, u32 in i32, u64 in i64);

impl ColumnValue for Ulid {
    type Raw = Uuid;

    fn to_raw(&self) -> Uuid {
        Uuid::from_u128(self.0)
    }

    fn from_raw(raw: Uuid) -> Result<Self, String> {
        Ok(Self(raw.as_u128()))
    }
}

impl ColumnValue for [u8; 32] {
    type Raw = Vec<u8>;

    fn to_raw(&self) -> Vec<u8> {
        self.to_vec()
    }

    fn from_raw(raw: Vec<u8>) -> Result<Self, String> {
        raw.try_into().map_err(|_| "not 32 bytes".to_owned())
    }
}

impl ColumnValue for Tags {
    type Raw = Value;

    fn to_raw(&self) -> Value {
        self.as_map().iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect()
    }

    fn from_raw(raw: Value) -> Result<Self, String> {
        Self::parse(serde_json::from_value(raw).map_err(|error| error.to_string())?).map_err(|bad| format!("{bad:?}"))
    }
}

impl ColumnValue for BrowserPolicy {
    type Raw = Value;

    fn to_raw(&self) -> Value {
        Value::Object(self.as_map().clone())
    }

    fn from_raw(raw: Value) -> Result<Self, String> {
        let Value::Object(map) = raw else { return Err("not an object".to_owned()) };
        Ok(Self::from_stored(map))
    }
}

/// Wraps each value in a [`Column`].
pub(crate) fn columns<T: Copy>(values: &[T]) -> Vec<Column<T>> {
    values.iter().copied().map(Column).collect()
}

/// A field or row that stores a value `V` of the domain.
pub(crate) trait Stored<V>: Sized {
    fn of(value: &V) -> Self;

    fn value(self) -> Result<V, BadRow>;
}

impl<T: Clone> Stored<T> for Column<T> {
    fn of(value: &T) -> Self {
        Self(value.clone())
    }

    fn value(self) -> Result<T, BadRow> {
        Ok(self.0)
    }
}

impl<V, C: Stored<V>> Stored<Option<V>> for Option<C> {
    fn of(value: &Option<V>) -> Self {
        value.as_ref().map(C::of)
    }

    fn value(self) -> Result<Option<V>, BadRow> {
        self.map(C::value).transpose()
    }
}

impl<V, C: Stored<V>> Stored<Vec<V>> for Vec<C> {
    fn of(value: &Vec<V>) -> Self {
        value.iter().map(C::of).collect()
    }

    fn value(self) -> Result<Vec<V>, BadRow> {
        self.into_iter().map(C::value).collect()
    }
}

impl<V, W, C: Stored<V>, D: Stored<W>> Stored<(V, W)> for (C, D) {
    fn of((first, second): &(V, W)) -> Self {
        (C::of(first), D::of(second))
    }

    fn value(self) -> Result<(V, W), BadRow> {
        Ok((self.0.value()?, self.1.value()?))
    }
}

/// Names, stored in sorted order.
impl Stored<BTreeSet<String>> for Vec<String> {
    fn of(value: &BTreeSet<String>) -> Self {
        value.iter().cloned().collect()
    }

    fn value(self) -> Result<BTreeSet<String>, BadRow> {
        Ok(self.into_iter().collect())
    }
}

/// The captured categories, then the [destination](export_to) and [`UNSTORED`]. What only a later version knows is left
/// out.
impl Stored<Option<Capture>> for Option<Vec<String>> {
    fn of(value: &Option<Capture>) -> Self {
        let capture = value.as_ref()?;
        let Delivery { destination, stored } = capture.delivery();
        let categories = capture.categories().map(|category| category.as_str().to_owned());
        let unstored = (!stored).then(|| UNSTORED.to_owned());
        Some(categories.chain(destination.map(export_to)).chain(unstored).collect())
    }

    fn value(self) -> Result<Option<Capture>, BadRow> {
        let Some(texts) = self else { return Ok(None) };
        let destination = texts.iter().find_map(|text| text.strip_prefix(EXPORT)?.parse().ok());
        let stored = !texts.iter().any(|text| text == UNSTORED);
        let capture = Capture::only(texts.iter().filter_map(|text| Category::parse(text)));
        Ok(capture.map(|capture| capture.delivered(Delivery { destination, stored })))
    }
}

/// The beginning of the text that names a destination among the captured categories.
const EXPORT: &str = "export:";
/// The text among the captured categories of events that are not stored.
const UNSTORED: &str = "unstored";

/// Returns the text that names a destination among the captured categories.
pub(crate) fn export_to(destination: TelemetryDestinationId) -> String {
    format!("{EXPORT}{destination}")
}

/// Types that diesel reads and writes without conversion.
macro_rules! as_it_is {
    ($($type:ty),+) => {$(
        impl Stored<$type> for $type {
            fn of(value: &$type) -> Self {
                value.clone()
            }

            fn value(self) -> Result<$type, BadRow> {
                Ok(self)
            }
        }
    )+};
}
as_it_is!(bool, i64, u8, String, OffsetDateTime);

/// Declares a row: a diesel struct. `as` gives the name of the column if it differs from that of the field. With `for`
/// and a type of the domain, the row is [`Stored`] as that type, which has fields of the same names.
///
/// The derived `Queryable` is not diesel's: it accepts only the SQL types of the row's own columns. Diesel's accepts all
/// SQL types that fit, which the compiler proves again for each query, twice for each level of embedded rows.
macro_rules! row {
    (
        #[derive(Debug, Queryable, Selectable $(, $derive:ident)*)]
        $(#[$meta:meta])*
        $vis:vis struct $row:ident $(for $value:ty)? {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty $(as $column:ident)?,)+
        }
    ) => {
        $crate::column::row! {
            #[derive(Debug, Selectable $(, $derive)*)]
            $(#[$meta])*
            $vis struct $row $(for $value)? { $($(#[$field_meta])* $field_vis $field: $type $(as $column)?,)+ }
        }

        impl diesel::Queryable<
            diesel::dsl::SqlTypeOf<<$row as diesel::Selectable<diesel::pg::Pg>>::SelectExpression>,
            diesel::pg::Pg,
        > for $row {
            type Row = ($($type,)+);

            fn build(($($field,)+): Self::Row) -> diesel::deserialize::Result<Self> {
                Ok(Self { $($field),+ })
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis struct $row:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty $(as $column:ident)?,)+
        }
    ) => {
        $(#[$meta])*
        $vis struct $row {
            $($(#[$field_meta])* $(#[diesel(column_name = $column)])? $field_vis $field: $type,)+
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis struct $row:ident for $value:ty {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty $(as $column:ident)?,)+
        }
    ) => {
        $crate::column::row! {
            $(#[$meta])*
            $vis struct $row { $($(#[$field_meta])* $field_vis $field: $type $(as $column)?,)+ }
        }

        impl $crate::column::Stored<$value> for $row {
            fn of(value: &$value) -> Self {
                Self { $($field: $crate::column::Stored::of(&value.$field),)+ }
            }

            fn value(self) -> Result<$value, $crate::error::BadRow> {
                type Value = $value;
                Ok(Value { $($field: $crate::column::Stored::value(self.$field)?,)+ })
            }
        }
    };
}
pub(crate) use row;
