//! What each refusal of the domain is to a caller: one `From` per error, so that one without an answer does not compile.

use casement_domain::{
    StoreError,
    access::{AccessError, ProjectArchived},
    api_key::{AuthenticateError, KeyError},
    audit::ReadAuditError,
    browser::{EngineError, EngineFault},
    field::{FieldCode, InvalidInput, InvalidValue},
    organization::LimitExceeded,
    pool::{AcquireError, CreatePoolError, DeletePoolError, FlushPoolError, ReleaseError, UpdatePoolError},
    project::{CreateProjectError, DeleteProjectError, ProjectNotFound, ProjectRefused, UpdateProjectError},
    replay::ReplayError,
    session::{CreateSessionError, EndSessionError, LoginRuns, NotSupported, UpdateSessionError, UseSessionError},
    session_operation::{OperationError, UpstreamFault},
    telemetry::ReadEventsError,
};

use crate::{
    error::{ApiError, Code},
    live_view::LiveViewError,
    relay::{BadHandshake, ConnectorError, RelayError},
    webdriver::ClassicError,
};

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { maybe_done: true, .. } => {
                Self::new(Code::Internal, "the database was lost in the middle of it; it may have been done")
                    .caused_by(error)
            }
            StoreError::Unavailable { .. } => {
                Self::new(Code::Unavailable, "the database is not available; nothing was done").caused_by(error)
            }
            StoreError::Broken { .. } => Self::internal(error),
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            // The browser's own id means nothing to a caller.
            EngineError::NotRunning(_) => {
                let message = "the session's browser is not running";
                Self::new(Code::BrowserUnavailable, message).with_inner(EngineFault::BrowserCrashed, message)
            }
            EngineError::Failed { fault, message } => {
                Self::new(Code::BrowserUnavailable, "the browser did not do it; nothing took effect")
                    .with_inner(fault, message)
            }
            EngineError::Lost { fault, message } => {
                Self::new(Code::Internal, "the browser was lost in the middle of it; it may have taken effect")
                    .with_inner(fault, message)
            }
            EngineError::OutOfRange(why) => {
                InvalidInput::of("viewport", InvalidValue::new(FieldCode::OutOfRange, why)).into()
            }
            EngineError::Waits(why) => Self::new(Code::InvalidState, why),
            EngineError::Profile(why) => {
                InvalidInput::of("profile", InvalidValue::new(FieldCode::NotAllowed, why)).into()
            }
            EngineError::Extension(why) => {
                InvalidInput::of("extensions", InvalidValue::new(FieldCode::NotAllowed, why)).into()
            }
            EngineError::Timeout { .. } => {
                let message = error.to_string();
                Self::new(Code::Timeout, message.clone()).with_inner(EngineFault::BrowserHung, message)
            }
            EngineError::NoRoom(_) => {
                Self::new(Code::Unavailable, "there is no room for another browser now").caused_by(error)
            }
        }
    }
}

impl From<OperationError> for ApiError {
    fn from(error: OperationError) -> Self {
        let code = match error {
            OperationError::Invalid(invalid) => return invalid.into(),
            OperationError::Engine(engine) => return engine.into(),
            OperationError::Upstream { fault, message } => {
                return Self::new(Code::UpstreamError, message.clone()).with_inner(fault, message);
            }
            OperationError::Unanswered { .. } => {
                let message = error.to_string();
                return Self::new(Code::Timeout, message.clone()).with_inner(UpstreamFault::Connect, message);
            }
            OperationError::OutsideRange { size } => {
                let outside = InvalidValue::new(FieldCode::OutOfRange, error.to_string());
                return Self::from(InvalidInput::of("Range", outside)).for_range(size);
            }
            OperationError::NotSupported(_) => Code::NotSupported,
            OperationError::Missing(_) => Code::NotFound,
            OperationError::Forbidden(_) => Code::PathForbidden,
            OperationError::Exists(_) => Code::AlreadyExists,
            OperationError::State(_) => Code::InvalidState,
            OperationError::Limit(_) | OperationError::DiskFull(_) => Code::LimitExceeded,
            OperationError::TooLarge(_) => Code::PayloadTooLarge,
            OperationError::Broken(_) => Code::BadRequest,
            OperationError::Stalled { .. } => Code::RequestTimeout,
            OperationError::Timeout { .. } => Code::Timeout,
            OperationError::Failed(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ReplayError> for ApiError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Operation(inside) => inside.into(),
            ReplayError::Store(store) => store.into(),
        }
    }
}

impl From<AuthenticateError> for ApiError {
    fn from(error: AuthenticateError) -> Self {
        match error {
            AuthenticateError::Refused => Self::unauthorized(true),
            AuthenticateError::Store(store) => store.into(),
        }
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Invalid(invalid) => invalid.into(),
            KeyError::NotFound(_) => Self::new(Code::NotFound, error.to_string()),
            KeyError::Itself(_) => Self::new(Code::InvalidState, error.to_string()),
            KeyError::Store(store) => store.into(),
        }
    }
}

impl From<ReadEventsError> for ApiError {
    fn from(error: ReadEventsError) -> Self {
        match error {
            ReadEventsError::Invalid(invalid) => invalid.into(),
            ReadEventsError::Offset(bad) => Self::new(Code::InvalidCursor, bad.to_string()),
            ReadEventsError::Store(store) => store.into(),
        }
    }
}

impl From<ReadAuditError> for ApiError {
    fn from(error: ReadAuditError) -> Self {
        match error {
            ReadAuditError::Invalid(invalid) => invalid.into(),
            ReadAuditError::Cursor(bad) => Self::new(Code::InvalidCursor, bad.to_string()),
            ReadAuditError::Store(store) => store.into(),
        }
    }
}

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::BadProject => Self::new(Code::BadRequest, "X-Kernel-Project-Id does not hold an identifier"),
            AccessError::OtherProject => Self::new(Code::Forbidden, error.to_string()),
            AccessError::ProjectNotFound(_) => Self::new(Code::NotFound, error.to_string()),
            AccessError::Store(store) => store.into(),
        }
    }
}

impl From<ProjectNotFound> for ApiError {
    fn from(error: ProjectNotFound) -> Self {
        match error {
            ProjectNotFound::NotFound(_) => Self::new(Code::NotFound, error.to_string()),
            ProjectNotFound::Store(store) => store.into(),
        }
    }
}

impl From<ProjectRefused> for ApiError {
    fn from(error: ProjectRefused) -> Self {
        Self::new(Code::InvalidState, error.to_string())
    }
}

impl From<CreateProjectError> for ApiError {
    fn from(error: CreateProjectError) -> Self {
        match error {
            CreateProjectError::Invalid(invalid) => invalid.into(),
            CreateProjectError::NameTaken(_) => Self::new(Code::NameConflict, error.to_string()),
            CreateProjectError::Store(store) => store.into(),
        }
    }
}

impl From<UpdateProjectError> for ApiError {
    fn from(error: UpdateProjectError) -> Self {
        match error {
            UpdateProjectError::Find(missing) => missing.into(),
            UpdateProjectError::Input(input) => input.into(),
            UpdateProjectError::Refused(refused) => refused.into(),
        }
    }
}

impl From<DeleteProjectError> for ApiError {
    fn from(error: DeleteProjectError) -> Self {
        match error {
            DeleteProjectError::Find(missing) => missing.into(),
            DeleteProjectError::Refused(refused) => refused.into(),
            DeleteProjectError::InUse { .. } => Self::new(Code::ResourceInUse, error.to_string()),
        }
    }
}

impl From<ProjectArchived> for ApiError {
    fn from(error: ProjectArchived) -> Self {
        Self::new(Code::ProjectArchived, error.to_string())
    }
}

impl From<NotSupported> for ApiError {
    fn from(error: NotSupported) -> Self {
        Self::new(Code::NotSupported, error.to_string())
    }
}

impl From<LimitExceeded> for ApiError {
    fn from(error: LimitExceeded) -> Self {
        Self::new(Code::LimitExceeded, error.to_string())
    }
}

/// There is no session yet that could be out of reach, and a start that fails leaves nothing: it can be asked for again.
fn not_started(error: EngineError) -> ApiError {
    let message = "the browser did not start; nothing was done";
    match error {
        EngineError::Failed { fault, message: why } => ApiError::new(Code::Unavailable, message).with_inner(fault, why),
        EngineError::Timeout { .. } => {
            ApiError::new(Code::Unavailable, message).with_inner(EngineFault::BrowserHung, error.to_string())
        }
        EngineError::NotRunning(_) => ApiError::new(Code::Unavailable, message).caused_by(error),
        other => other.into(),
    }
}

impl From<CreateSessionError> for ApiError {
    fn from(error: CreateSessionError) -> Self {
        match error {
            CreateSessionError::Invalid(invalid) => invalid.into(),
            CreateSessionError::NotSupported(unsupported) => unsupported.into(),
            CreateSessionError::Archived(archived) => archived.into(),
            CreateSessionError::ProjectGone => Self::new(Code::NotFound, error.to_string()),
            CreateSessionError::NameTaken(_) => Self::new(Code::NameConflict, error.to_string()),
            CreateSessionError::Limit(limit) => limit.into(),
            CreateSessionError::Engine(engine) => not_started(engine),
            CreateSessionError::Store(store) => store.into(),
        }
    }
}

impl From<LoginRuns> for ApiError {
    fn from(refused: LoginRuns) -> Self {
        Self::new(Code::InvalidState, refused.to_string())
    }
}

impl From<UseSessionError> for ApiError {
    fn from(error: UseSessionError) -> Self {
        match error {
            UseSessionError::NotFound(_) => Self::new(Code::NotFound, error.to_string()),
            UseSessionError::LoginRuns(refused) => refused.into(),
            UseSessionError::Invalid(invalid) => invalid.into(),
            UseSessionError::Engine(engine) => engine.into(),
            UseSessionError::Store(store) => store.into(),
        }
    }
}

impl From<UpdateSessionError> for ApiError {
    fn from(error: UpdateSessionError) -> Self {
        match error {
            UpdateSessionError::Use(error) => error.into(),
            UpdateSessionError::NotSupported(unsupported) => unsupported.into(),
            UpdateSessionError::NameTaken(_) => Self::new(Code::NameConflict, error.to_string()),
            UpdateSessionError::Profile(inside) => inside.into(),
            UpdateSessionError::HasProfile(_) | UpdateSessionError::Watched(_) | UpdateSessionError::Recorded(_) => {
                Self::new(Code::InvalidState, error.to_string())
            }
        }
    }
}

impl From<EndSessionError> for ApiError {
    fn from(error: EndSessionError) -> Self {
        match error {
            EndSessionError::NotFound(_) => Self::new(Code::NotFound, error.to_string()),
            EndSessionError::Refused(refused) => Self::new(Code::InvalidState, refused.to_string()),
            EndSessionError::Store(store) => store.into(),
        }
    }
}

impl From<CreatePoolError> for ApiError {
    fn from(error: CreatePoolError) -> Self {
        match error {
            CreatePoolError::Invalid(invalid) => invalid.into(),
            CreatePoolError::NotSupported(unsupported) => unsupported.into(),
            CreatePoolError::Archived(archived) => archived.into(),
            CreatePoolError::NameTaken(_) => Self::new(Code::NameConflict, error.to_string()),
            CreatePoolError::Limit(limit) => limit.into(),
            CreatePoolError::ProjectGone => Self::new(Code::NotFound, error.to_string()),
            CreatePoolError::Store(store) => store.into(),
        }
    }
}

impl From<UpdatePoolError> for ApiError {
    fn from(error: UpdatePoolError) -> Self {
        match error {
            UpdatePoolError::NotFound(_) => Self::new(Code::NotFound, error.to_string()),
            UpdatePoolError::Input(input) => input.into(),
        }
    }
}

impl From<DeletePoolError> for ApiError {
    fn from(error: DeletePoolError) -> Self {
        match error {
            DeletePoolError::NotFound(_) => Self::new(Code::NotFound, error.to_string()),
            DeletePoolError::InUse { .. } => Self::new(Code::ResourceInUse, error.to_string()),
            DeletePoolError::Store(store) => store.into(),
        }
    }
}

impl From<FlushPoolError> for ApiError {
    fn from(error: FlushPoolError) -> Self {
        match error {
            FlushPoolError::Archived(archived) => archived.into(),
            FlushPoolError::Store(store) => store.into(),
        }
    }
}

impl From<AcquireError> for ApiError {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Invalid(invalid) => invalid.into(),
            AcquireError::Archived(archived) => archived.into(),
            AcquireError::PoolNotFound(_) => Self::new(Code::NotFound, error.to_string()),
            AcquireError::NameTaken(_) => Self::new(Code::NameConflict, error.to_string()),
            AcquireError::Store(store) => store.into(),
        }
    }
}

impl From<ReleaseError> for ApiError {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::PoolNotFound(_) | ReleaseError::NotLeased(_) => Self::new(Code::NotFound, error.to_string()),
            ReleaseError::Store(store) => store.into(),
        }
    }
}

impl From<ConnectorError> for ApiError {
    fn from(error: ConnectorError) -> Self {
        match error {
            ConnectorError::Ended => Self::new(Code::NotFound, "the browser session has ended"),
            ConnectorError::Unavailable(_) => {
                Self::new(Code::BrowserUnavailable, "the session's browser does not answer").caused_by(error)
            }
        }
    }
}

impl From<BadHandshake> for ApiError {
    fn from(error: BadHandshake) -> Self {
        use actix_web::http::header::{HeaderValue, SEC_WEBSOCKET_VERSION, UPGRADE};

        let refusal = Self::new(Code::BadRequest, error.to_string());
        match error {
            BadHandshake::NoUpgrade => refusal.with_header(UPGRADE, HeaderValue::from_static("websocket")),
            BadHandshake::Version => refusal.with_header(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
            BadHandshake::Key => refusal,
        }
    }
}

impl From<RelayError> for ApiError {
    fn from(error: RelayError) -> Self {
        let code = match &error {
            RelayError::Io(_) | RelayError::Timeout => Code::BrowserUnavailable,
            RelayError::Refused { status: 404 } => Code::NotFound,
            RelayError::Refused { .. } | RelayError::Handshake => Code::UpstreamError,
            RelayError::Path => return Self::internal(error),
        };
        let text = match code {
            Code::NotFound => "the browser knows no such session",
            Code::UpstreamError => "the browser refused the connection",
            _ => "the session's browser does not answer",
        };
        Self::new(code, text).caused_by(error)
    }
}

impl From<ClassicError> for ApiError {
    fn from(error: ClassicError) -> Self {
        let code = match error {
            ClassicError::UnknownCommand => Code::RouteNotFound,
            ClassicError::Method => Code::MethodNotAllowed,
            ClassicError::Body | ClassicError::Capabilities(_) => Code::BadRequest,
            ClassicError::Io(_) => Code::BrowserUnavailable,
            ClassicError::Response(_) => Code::UpstreamError,
        };
        Self::new(code, error.to_string()).for_webdriver().caused_by(error)
    }
}

impl From<LiveViewError> for ApiError {
    fn from(error: LiveViewError) -> Self {
        match error {
            LiveViewError::Handshake(handshake) => handshake.into(),
            LiveViewError::Connect(_) => {
                Self::new(Code::BrowserUnavailable, "the session's browser does not answer").caused_by(error)
            }
        }
    }
}
