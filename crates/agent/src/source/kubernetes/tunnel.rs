//! flannel's form of what a node says of its end of a tunnel: `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`.

use serde_json::Value;

use crate::flannel::{parse_tunnel, tunnel_value};
use crate::lease::TunnelData;

/// The text of an annotation. Nothing is `null`, as flannel writes it for transports without tunnels.
pub(super) fn text(data: Option<TunnelData>) -> String {
    data.map_or(Value::Null, tunnel_value).to_string()
}

/// What an annotation says.
///
/// # Errors
/// Why it makes no sense.
pub(super) fn parse(text: &str) -> Result<Option<TunnelData>, String> {
    match serde_json::from_str(text).map_err(|error| error.to_string())? {
        Value::Null => Ok(None),
        data => parse_tunnel("backend-data", &data).map(Some).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use linux::Mac;

    use super::*;

    #[test]
    fn the_form_is_flannels() {
        let data = TunnelData { vni: Some(1), mac: Mac([2, 0, 0, 0, 0, 0xab]) };
        assert_eq!(text(Some(data)), r#"{"VNI":1,"VtepMAC":"02:00:00:00:00:ab"}"#);
        assert_eq!(text(None), "null");
        for data in [Some(data), Some(TunnelData { vni: None, ..data }), None] {
            assert_eq!(parse(&text(data)), Ok(data));
        }
        assert!(parse(r#"{"VNI":-1,"VtepMAC":"02:00:00:00:00:ab"}"#).is_err());
        assert!(parse(r#"{"VNI":1,"VtepMAC":"02:00"}"#).unwrap_err().contains("VtepMAC"));
    }
}
