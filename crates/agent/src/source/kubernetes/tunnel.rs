//! flannel's form of what a node says of its end of a tunnel: `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`.

use linux::Mac;
use serde::{Deserialize, Serialize};

use crate::lease::TunnelData;

#[derive(Serialize, Deserialize)]
struct Vxlan {
    #[serde(rename = "VNI", skip_serializing_if = "Option::is_none")]
    vni: Option<u32>,
    #[serde(rename = "VtepMAC")]
    vtep_mac: String,
}

/// The text of an annotation. Nothing is `null`, as flannel writes it for transports without tunnels.
pub(super) fn text(data: Option<TunnelData>) -> String {
    let data = data.map(|data| Vxlan { vni: data.vni, vtep_mac: data.mac.to_string() });
    serde_json::to_string(&data).expect("its keys are texts")
}

/// What an annotation says.
///
/// # Errors
/// Why it makes no sense.
pub(super) fn parse(text: &str) -> Result<Option<TunnelData>, String> {
    let data: Option<Vxlan> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    data.map(|Vxlan { vni, vtep_mac }| {
        let mac: Mac = vtep_mac.parse().map_err(|error| format!("VtepMAC: {error}"))?;
        Ok(TunnelData { vni, mac })
    })
    .transpose()
}

#[cfg(test)]
mod tests {
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
        assert!(parse(r#"{"VNI":1,"VtepMAC":"02:00"}"#).unwrap_err().starts_with("VtepMAC"));
    }
}
