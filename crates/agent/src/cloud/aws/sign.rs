//! Signature version 4 of AWS, for requests as EC2 has them: a form that is posted to `/`.
//!
//! A path and parameters of a URL would have to be brought into one form first; here there are none. That leaves two
//! hashes and five keyed ones.

use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use ring::{digest, hmac};

use super::credentials::Keys;

/// The type of the body.
pub(super) const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The parts of a request that its signature covers.
pub(super) struct UnsignedRequest<'a> {
    /// With the port, if the URL has one.
    pub(super) host: &'a str,
    pub(super) body: &'a str,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
}

/// The headers that a signed request has beside its type and host.
pub(super) fn headers(
    request: &UnsignedRequest<'_>,
    keys: &Keys,
    now: SystemTime,
) -> Vec<(&'static str, String)> {
    let now = Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH);
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let token = keys.token.as_ref().map(|token| ("x-amz-security-token", token.clone()));
    let mut signed = vec![("content-type", FORM.to_owned()), ("host", request.host.to_owned())];
    signed.push(("x-amz-date", time.clone()));
    signed.extend(token.clone());
    let authorization = authorization(request, keys, &time, &signed);
    let mut headers = vec![("authorization", authorization), ("x-amz-date", time)];
    headers.extend(token);
    headers
}

/// The header with the signature of these headers, which are in alphabetical order.
fn authorization(
    request: &UnsignedRequest<'_>,
    keys: &Keys,
    time: &str,
    signed: &[(&str, String)],
) -> String {
    let UnsignedRequest { body, region, service, .. } = request;
    let date = time.get(..8).unwrap_or_default();
    let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: String = signed.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let canonical = format!("POST\n/\n\n{lines}\n{names}\n{}", hash(body));
    let scope = format!("{date}/{region}/{service}/aws4_request");
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", hash(&canonical));
    let secret = format!("AWS4{}", keys.secret);
    let parts = [date, region, service, "aws4_request", &text];
    let signature = parts.iter().fold(secret.into_bytes(), |key, part| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        hmac::sign(&key, part.as_bytes()).as_ref().to_vec()
    });
    let id = &keys.id;
    format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={}", hex(&signature))
}

fn hash(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 2] = ["AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"];

    /// `post-x-www-form-urlencoded` of AWS's own test suite of this version.
    #[test]
    fn a_form_is_signed_as_in_the_test_suite() {
        let request = UnsignedRequest {
            host: "example.amazonaws.com",
            body: "Param1=value1",
            region: "us-east-1",
            service: "service",
        };
        let signed = [
            ("content-type", "application/x-www-form-urlencoded".to_owned()),
            ("host", request.host.to_owned()),
            ("x-amz-date", "20150830T123600Z".to_owned()),
        ];
        let header = authorization(&request, &Keys::new(KEYS[0], KEYS[1]), "20150830T123600Z", &signed);
        assert_eq!(
            header,
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
        );
    }

    #[test]
    fn the_token_of_a_role_is_signed_too() {
        let request = UnsignedRequest { host: "h", body: "", region: "r", service: "ec2" };
        let keys = Keys { token: Some("t".to_owned()), ..Keys::new("id", "secret") };
        let headers = headers(&request, &keys, SystemTime::UNIX_EPOCH);
        assert_eq!(
            headers[1..],
            [("x-amz-date", "19700101T000000Z".to_owned()), ("x-amz-security-token", "t".to_owned())]
        );
        assert!(headers[0].1.contains("SignedHeaders=content-type;host;x-amz-date;x-amz-security-token"));
        assert!(!headers[0].1.contains("secret"));
    }
}
