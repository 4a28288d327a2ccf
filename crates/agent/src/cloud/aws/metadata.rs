//! What an instance knows of itself: version 2 of EC2's instance metadata service. A question needs a token, which only
//! a program on the instance gets, and only by a method that a careless proxy does not pass on.

use http::{Method, Request, StatusCode};

use super::super::CloudError;
use super::http::Client;

/// The usual place of the service, by a link-local address.
const USUAL: &str = "http://169.254.169.254";
/// How long a token lasts, in seconds: as long as a few questions.
const TOKEN_S: &str = "60";

/// The service from which a machine of the cloud learns about itself.
pub(super) struct Metadata {
    url: String,
}

impl Metadata {
    pub(super) fn at(url: Option<&str>) -> Metadata {
        Metadata { url: url.unwrap_or(USUAL).trim_end_matches('/').to_owned() }
    }

    /// Asks for an entry of `meta-data`.
    pub(super) async fn ask(&self, http: &mut Client, what: &str) -> Result<String, CloudError> {
        let found = self.find(http, what).await?;
        found.ok_or_else(|| self.unanswered(what, "there is no such entry".to_owned()))
    }

    /// The same; `None`: there is no such entry.
    pub(super) async fn find(&self, http: &mut Client, what: &str) -> Result<Option<String>, CloudError> {
        let token = Request::builder()
            .method(Method::PUT)
            .uri(format!("{}/latest/api/token", self.url))
            .header("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_S);
        let token = http.send(token, String::new()).await.map_err(|why| self.unanswered(what, why))?;
        if token.status != StatusCode::OK {
            return Err(self.unanswered(what, format!("it gives no token, and answers {}", token.status)));
        }
        let token = String::from_utf8_lossy(&token.body).into_owned();
        let request = Request::builder()
            .uri(format!("{}/latest/meta-data/{what}", self.url))
            .header("x-aws-ec2-metadata-token", token);
        let answer = http.send(request, String::new()).await.map_err(|why| self.unanswered(what, why))?;
        match answer.status {
            StatusCode::OK => Ok(Some(String::from_utf8_lossy(&answer.body).trim().to_owned())),
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(self.unanswered(what, format!("it answers {status}"))),
        }
    }

    /// Where it is asked, and for what.
    fn unanswered(&self, what: &str, why: String) -> CloudError {
        CloudError::Unanswered {
            attempt: format!("ask the instance's metadata service, {}, for {what}", self.url),
            why,
        }
    }
}
