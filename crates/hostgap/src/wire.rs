//! Options that make the wire between the nodes longer, worse or narrower.

use ::record::{BitRate, Delay, Share, Underlay, Wire};

/// What the wire between the nodes does to packets. It takes netem in the kernel, and tbf for a line rate.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WireArgs {
    /// How long packets are under way, each way (40ms): a round trip takes it twice.
    #[arg(long, value_name = "TIME")]
    delay: Option<Delay>,
    /// By how much the delay is longer or shorter (2ms), evenly spread; packets overtake each other then.
    #[arg(long, value_name = "TIME")]
    jitter: Option<Delay>,
    /// The share of packets that are lost, each way (0.2%).
    #[arg(long, value_name = "SHARE")]
    loss: Option<Share>,
    /// The share of packets that overtake those before them (1%).
    #[arg(long, value_name = "SHARE")]
    reorder: Option<Share>,
    /// What it carries each way (512kbit, 100mbit, 2.5gbit).
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<BitRate>,
    /// What each node's own card sends (10gbit): the queue before it is the node's, and its `qdisc` manages it.
    #[arg(long, value_name = "RATE")]
    line_rate: Option<BitRate>,
    /// Cut packets to segments before they enter the wire, so that each is lost by itself.
    #[arg(long)]
    no_gso: bool,
}

impl WireArgs {
    /// Changes what a file says, in both directions.
    pub(crate) fn change(&self, underlay: &mut Underlay) {
        let said = Wire {
            delay: self.delay,
            jitter: self.jitter,
            loss: self.loss,
            reorder: self.reorder,
            rate: self.bandwidth,
            line_rate: self.line_rate,
            gso: self.no_gso.then_some(false),
        };
        let Wire { delay, jitter, loss, reorder, rate, line_rate, gso } = said.or(underlay.both_ways());
        *underlay = Underlay { delay, jitter, loss, reorder, rate, line_rate, gso, ..underlay.clone() };
        for way in [&mut underlay.to_server, &mut underlay.to_client].into_iter().flatten() {
            *way = said.or(*way);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        wire: WireArgs,
    }

    #[test]
    fn options_hold_for_both_directions_whatever_the_file_says() {
        let command = Command::try_parse_from(["x", "--delay", "40ms", "--bandwidth", "1gbit", "--no-gso"]);
        let wire =
            |delay: &str| Wire { delay: delay.parse().ok(), loss: "1%".parse().ok(), ..Wire::default() };
        let mut underlay = Underlay { to_client: Some(wire("9ms")), mtu: 9000, ..Underlay::default() };
        command.unwrap().wire.change(&mut underlay);
        assert_eq!(underlay.to_server().to_string(), "delay 40ms, rate 1gbit, no GSO");
        assert_eq!(underlay.to_client().to_string(), "delay 40ms, loss 1%, rate 1gbit, no GSO");
        assert_eq!(underlay.mtu, 9000);
        let plain = Command::try_parse_from(["x"]).unwrap().wire;
        let before = underlay.clone();
        plain.change(&mut underlay);
        assert_eq!(underlay, before);
    }

    #[test]
    fn a_figure_without_its_unit_is_refused_with_an_example() {
        let error = Command::try_parse_from(["x", "--loss", "0.002"]).err().unwrap().to_string();
        assert!(error.contains("a share of packets: 0.2% or 5% is expected"), "{error}");
    }
}
