//! The row of an audit record, as exports read it.

use super::*;

#[derive(Debug)]
pub(super) struct Row {
    id: Column<AuditRecordId>,
    at: OffsetDateTime,
    auth_strategy: Column<AuthStrategy>,
    service: Column<AuditService>,
    user_id: String,
    email: String,
    api_key_id: Option<Column<ApiKeyId>>,
    project_id: Option<Column<ProjectId>>,
    client_ip: String,
    domain: String,
    method: String,
    path: String,
    route: String,
    status: Column<u16>,
    duration_ms: Column<u64>,
    user_agent: String,
    request_id: String,
    count: i64,
}

/// Reads the fields in the order of `columns`, since searching each by its name in each row would slow exports down.
impl QueryableByName<Pg> for Row {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let mut row = InOrder { row, next: 0 };
        Ok(Self {
            id: row.take::<SqlUuid, _>()?,
            at: row.take::<Timestamptz, _>()?,
            auth_strategy: row.take::<Text, _>()?,
            service: row.take::<Text, _>()?,
            user_id: row.take::<Text, _>()?,
            email: row.take::<Text, _>()?,
            api_key_id: row.take::<Nullable<SqlUuid>, _>()?,
            project_id: row.take::<Nullable<SqlUuid>, _>()?,
            client_ip: row.take::<Text, _>()?,
            domain: row.take::<Text, _>()?,
            method: row.take::<Text, _>()?,
            path: row.take::<Text, _>()?,
            route: row.take::<Text, _>()?,
            status: row.take::<Integer, _>()?,
            duration_ms: row.take::<BigInt, _>()?,
            user_agent: row.take::<Text, _>()?,
            request_id: row.take::<Text, _>()?,
            count: row.take::<BigInt, _>()?,
        })
    }
}

/// The fields of a row, one after the other.
pub(super) struct InOrder<'r, R> {
    row: &'r R,
    next: usize,
}

impl<R> InOrder<'_, R> {
    fn take<'a, ST, T>(&mut self) -> deserialize::Result<T>
    where
        R: NamedRow<'a, Pg>,
        T: FromSql<ST, Pg>,
    {
        let field = diesel::row::Row::get(self.row, self.next).ok_or("a row of audit_records has too few columns")?;
        self.next += 1;
        let bad = |why| BadRow::new(field.field_name().unwrap_or("a column"), why);
        T::from_nullable_sql(field.value()).map_err(|why| bad(why).into())
    }
}

impl Row {
    pub(super) fn record(self, organization: OrganizationId) -> Result<AuditRecord, BadRow> {
        let user = (!self.user_id.is_empty()).then(|| self.user_id.parse::<UserId>()).transpose();
        let entry = AuditEntry {
            id: self.id.0,
            at: self.at,
            auth_strategy: self.auth_strategy.0,
            service: self.service.0,
            api_key: self.api_key_id.map(|id| id.0),
            project: self.project_id.map(|id| id.0),
            client_ip: self.client_ip,
            domain: self.domain,
            method: self.method,
            path: self.path,
            route: self.route,
            status: self.status.0,
            duration_ms: self.duration_ms.0,
            user_agent: self.user_agent,
            request_id: self.request_id,
            count: u32::try_from(self.count).map_err(|error| BadRow::new("count", error))?,
        };
        let user = user.map_err(|error| BadRow::new("user_id", error))?;
        Ok(AuditRecord { organization, user, email: self.email, entry })
    }
}
