//! The responses to the errors of the domain: one `From` per error type, so that a new error without one does not
//! compile.

use std::convert::Infallible;

use casement_domain::{
    InUse, NameTaken, NotFound, StoreError, UseCaseError,
    access::{AccessError, ProjectArchived},
    api_key::{AuthenticateError, KeyRefused},
    audit::BadCursor,
    auth_connection::AuthConnectionFailure,
    blob::BlobError,
    browser::{EngineError, EngineFault},
    credential::NoTotpSecret,
    credential_provider::ProviderFault,
    engine::EngineRefused,
    field::{FieldCode, InvalidInput, InvalidValue},
    invocation::InvocationFailure,
    network::StaleNetwork,
    node::{AwayFromStore, NodeRefused},
    organization::{Limit, LimitExceeded},
    permission::InsufficientScope,
    pool::{BrowsersLeased, NotLeased},
    profile::ProfileUnavailable,
    project::{DeleteProjectFailure, ProjectRefused},
    proxy::AmbiguousName,
    session::{EndSessionError, LoginRuns, NotSupported, StartFailed, UpdateSessionError, UseSessionError},
    session_operation::{OperationError, UpstreamFault},
    telemetry::BadOffset,
};

use crate::{
    error::{ApiError, Code},
    live_view::LiveViewError,
    relay::{BadHandshake, ConnectorError, RelayError},
    webdriver::ClassicError,
};

/// Implements `From` for errors whose response has the given code and the error's own message.
macro_rules! respond_with_own_message {
    ($($error:ty => $code:ident,)*) => {$(
        impl From<$error> for ApiError {
            fn from(error: $error) -> Self {
                Self::new(Code::$code, error.to_string())
            }
        }
    )*};
}

respond_with_own_message! {
    AmbiguousName => AmbiguousProxyName,
    AwayFromStore => Unavailable,
    BadCursor => InvalidCursor,
    BadOffset => InvalidCursor,
    BrowsersLeased => ResourceInUse,
    EngineRefused => NotSupported,
    InUse => ResourceInUse,
    InsufficientScope => InsufficientScope,
    LoginRuns => InvalidState,
    NameTaken => NameConflict,
    NodeRefused => InvalidState,
    NotFound => NotFound,
    NotLeased => NotFound,
    NotSupported => NotSupported,
    NoTotpSecret => NotFound,
    ProjectArchived => ProjectArchived,
    ProjectRefused => InvalidState,
    StaleNetwork => StaleNetwork,
}

impl<E: Into<ApiError>> From<UseCaseError<E>> for ApiError {
    fn from(error: UseCaseError<E>) -> Self {
        match error {
            UseCaseError::Invalid(error) => error.into(),
            UseCaseError::NotSupported(error) => error.into(),
            UseCaseError::Archived(error) => error.into(),
            UseCaseError::ProjectDeleted => Self::new(Code::NotFound, "the project was deleted"),
            UseCaseError::Limit(error) => error.into(),
            UseCaseError::NameTaken(error) => error.into(),
            UseCaseError::NotFound(error) => error.into(),
            UseCaseError::InUse(error) => error.into(),
            UseCaseError::Seal(error) => Self::internal(error),
            UseCaseError::Store(error) => error.into(),
            UseCaseError::Unavailable(why) => Self::new(Code::Unavailable, why),
            UseCaseError::Specific(error) => error.into(),
        }
    }
}

impl From<LimitExceeded> for ApiError {
    fn from(exceeded: LimitExceeded) -> Self {
        let error = Self::new(Code::LimitExceeded, exceeded.to_string());
        if exceeded.limit == Limit::NodeSessions { error.for_full_node() } else { error }
    }
}

impl From<Infallible> for ApiError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { maybe_done: true, .. } => {
                Self::new(Code::Internal, "the database connection was lost; the change may have been applied")
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
            // The message does not name the browser's id, which is internal.
            EngineError::NotRunning(_) => {
                let message = "the session's browser is not running";
                Self::new(Code::BrowserUnavailable, message).with_inner(EngineFault::BrowserCrashed, message)
            }
            EngineError::Failed { fault, message } => {
                Self::new(Code::BrowserUnavailable, "the browser did not perform the operation; nothing changed")
                    .with_inner(fault, message)
            }
            EngineError::Lost { fault, message } => {
                Self::new(Code::Internal, "the browser was lost during the operation; it may have taken effect")
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
            EngineError::Unavailable(why) => Self::new(Code::Unavailable, why),
            EngineError::Location(why) => Self::new(Code::NotSupported, format!("location: {why}")),
            EngineError::Timeout { .. } => {
                let message = error.to_string();
                Self::new(Code::Timeout, message.clone()).with_inner(EngineFault::BrowserHung, message)
            }
            EngineError::Full(reason) => Self::new(Code::Unavailable, "there is no room for another browser now")
                .with_inner(EngineFault::RemoteError, reason),
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
            OperationError::Unavailable(_) => Code::Unavailable,
            OperationError::Failed(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
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

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::BadProject => Self::new(Code::BadRequest, "X-Kernel-Project-Id does not hold an identifier"),
            AccessError::DifferentProjects => Self::new(Code::BadRequest, error.to_string()),
            AccessError::OtherProject => Self::new(Code::Forbidden, error.to_string()),
            AccessError::ProjectNotFound(_) => Self::new(Code::NotFound, error.to_string()),
            AccessError::Store(store) => store.into(),
        }
    }
}

impl From<KeyRefused> for ApiError {
    fn from(error: KeyRefused) -> Self {
        match error {
            KeyRefused::DeletesItself(_) => Self::new(Code::InvalidState, error.to_string()),
            KeyRefused::InsufficientScope(refused) => refused.into(),
        }
    }
}

impl From<DeleteProjectFailure> for ApiError {
    fn from(error: DeleteProjectFailure) -> Self {
        match error {
            DeleteProjectFailure::Refused(refused) => refused.into(),
            DeleteProjectFailure::InUse { .. } => Self::new(Code::ResourceInUse, error.to_string()),
        }
    }
}

impl From<StartFailed> for ApiError {
    /// A failed start leaves nothing behind and creates no session, so the call can be repeated.
    fn from(StartFailed(error): StartFailed) -> Self {
        let message = "the browser did not start; nothing was done";
        match error {
            EngineError::Failed { fault, message: why } => Self::new(Code::Unavailable, message).with_inner(fault, why),
            EngineError::Timeout { .. } => {
                Self::new(Code::Unavailable, message).with_inner(EngineFault::BrowserHung, error.to_string())
            }
            EngineError::NotRunning(_) => Self::new(Code::Unavailable, message).caused_by(error),
            other => other.into(),
        }
    }
}

impl From<UseSessionError> for ApiError {
    fn from(error: UseSessionError) -> Self {
        match error {
            UseSessionError::NotFound(missing) => missing.into(),
            UseSessionError::LoginRuns(refused) => refused.into(),
            UseSessionError::Invalid(invalid) => invalid.into(),
            UseSessionError::EngineRefused(refused) => refused.into(),
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
            UpdateSessionError::NameTaken(taken) => taken.into(),
            UpdateSessionError::Profile(inside) => inside.into(),
            UpdateSessionError::StaleNetwork(stale) => stale.into(),
            UpdateSessionError::HasProfile(_) | UpdateSessionError::Watched(_) | UpdateSessionError::Recorded(_) => {
                Self::new(Code::InvalidState, error.to_string())
            }
        }
    }
}

impl From<EndSessionError> for ApiError {
    fn from(error: EndSessionError) -> Self {
        match error {
            EndSessionError::NotFound(missing) => missing.into(),
            EndSessionError::Refused(refused) => Self::new(Code::InvalidState, refused.to_string()),
            EndSessionError::Store(store) => store.into(),
        }
    }
}

impl From<BlobError> for ApiError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Content(error) => error.into(),
            BlobError::Unavailable(why) => Self::new(Code::Unavailable, why),
            BlobError::Store(_) => {
                Self::new(Code::Unavailable, "stored files cannot be reached; nothing was done").caused_by(error)
            }
        }
    }
}

impl From<ProfileUnavailable> for ApiError {
    fn from(ProfileUnavailable(error): ProfileUnavailable) -> Self {
        match error {
            BlobError::Unavailable(why) => Self::new(Code::Unavailable, why),
            other => Self::new(Code::Unavailable, "what was saved cannot be reached").caused_by(other),
        }
    }
}

impl From<ProviderFault> for ApiError {
    fn from(fault: ProviderFault) -> Self {
        let message = format!("the credential provider could not be queried: {fault}");
        Self::new(Code::UpstreamError, message).with_inner(&fault, fault.to_string())
    }
}

impl From<AuthConnectionFailure> for ApiError {
    fn from(error: AuthConnectionFailure) -> Self {
        let code = match error {
            AuthConnectionFailure::Exists { .. } => Code::AlreadyExists,
            AuthConnectionFailure::NoFlow | AuthConnectionFailure::Refused(_) => Code::InvalidState,
            AuthConnectionFailure::Profile(unavailable) => return unavailable.into(),
        };
        Self::new(code, error.to_string())
    }
}

impl From<InvocationFailure> for ApiError {
    fn from(error: InvocationFailure) -> Self {
        match error {
            InvocationFailure::NotRunning { .. } | InvocationFailure::Refused(_) => {
                Self::new(Code::InvalidState, error.to_string())
            }
            InvocationFailure::Browser(error) => error.into(),
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
            ClassicError::Connector(error) => return Self::from(error).for_webdriver(),
            ClassicError::NotSupported { .. } => {
                return Self::new(Code::NotSupported, error.to_string()).for_new_webdriver_session();
            }
            ClassicError::UnknownSession => Code::NotFound,
            ClassicError::Timeout => Code::Timeout,
            ClassicError::UnknownCommand => Code::RouteNotFound,
            ClassicError::Method => Code::MethodNotAllowed,
            ClassicError::Body | ClassicError::Capabilities(_) => Code::BadRequest,
            ClassicError::Io(_) => Code::BrowserUnavailable,
            ClassicError::Response(_) | ClassicError::Refused { .. } => Code::UpstreamError,
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
