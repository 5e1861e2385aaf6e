//! One answer of one server for the server itself, asked with a token.

use std::time::Duration;

use http_body_util::BodyExt as _;
use secrecy::{SecretSlice, SecretString};
use tokio::time::timeout;
use url::Url;
use zeroize::Zeroizing;

use crate::{
    fetch::{FetchError, answer_of, broken},
    session::Egress,
};

impl Egress {
    /// What is answered at `url`, whatever its status and whole, to whoever has that token. The host is looked up, checked and dialled
    /// like a session's. A redirect is an answer: it is not followed, for the token is for this host alone.
    ///
    /// # Errors
    /// See [`FetchError`]; [`FetchError::TooLong`] if it has more than `most_bytes`, [`FetchError::Silent`] if it is not there
    /// `within` that time.
    pub async fn ask(
        &self,
        url: &Url,
        bearer: &SecretString,
        most_bytes: usize,
        within: Duration,
    ) -> Result<(u16, SecretSlice<u8>), FetchError> {
        let asking = async {
            let (answer, _driver) = answer_of(&self.upstream(), url, Some(bearer)).await?;
            let status = answer.status().as_u16();
            let mut body = answer.into_body();
            let mut whole = Zeroizing::new(Vec::new());
            while let Some(frame) = body.frame().await {
                let Ok(part) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
                if part.len() > most_bytes - whole.len() {
                    return Err(FetchError::TooLong(most_bytes));
                }
                whole.extend_from_slice(&part);
            }
            Ok((status, std::mem::take(&mut *whole).into()))
        };
        timeout(within, asking).await.map_err(|_| FetchError::Silent)?
    }
}
