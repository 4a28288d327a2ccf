//! What a route tells connections.

use ipnet::IpNet;
use linux::IfName;
use linux::netlink::{MetricState, MetricValue, RouteMetric};

use super::{MovedBack, Past, existing, put_back};
use crate::entry::{After, Before, Intent, Undone};
use crate::error::StepError;
use crate::{Kernel, Place, Placed};

pub(super) fn before(
    kernel: &mut Kernel,
    place: &Place,
    route: (&IpNet, &IfName),
    metric: RouteMetric,
) -> Result<Before, StepError> {
    let index = existing(kernel, place, route.1)?.index;
    Ok(Before::RouteMetric { index, state: read(kernel, place, route, metric)? })
}

pub(super) fn act(
    kernel: &mut Kernel,
    place: &Place,
    dst: &IpNet,
    metric: RouteMetric,
    value: &MetricValue,
    before: &Before,
) -> Result<(), StepError> {
    let Before::RouteMetric { index, .. } = before else { unreachable!("before made another state") };
    Ok(kernel.at(place)?.netlink.route_set_metric(dst, *index, metric, &metric.set_to(value))?)
}

pub(super) fn after(
    kernel: &mut Kernel,
    place: &Place,
    route: (&IpNet, &IfName),
    metric: RouteMetric,
) -> Result<After, StepError> {
    Ok(After::RouteMetric { state: read(kernel, place, route, metric)? })
}

pub(super) fn verify(metric: RouteMetric, value: &MetricValue, found: &MetricState) -> Result<(), StepError> {
    let wanted = metric.set_to(value);
    if wanted == *found {
        return Ok(());
    }
    let text = |state: &MetricState| format!("{} {state}", metric.word());
    Err(StepError::NotTaken { wanted: text(&wanted), found: text(found) })
}

pub(super) fn undo(
    kernel: &mut Kernel,
    past: &Past,
    (dst, metric, value): (&IpNet, RouteMetric, &MetricValue),
    moved: &MovedBack,
) -> Result<Undone, StepError> {
    let Intent { placed: Placed { place, .. }, before, .. } = &past.intent;
    let Before::RouteMetric { index, state: old } = before else { unreachable!("before made another state") };
    let ours = match &past.after {
        Some(After::RouteMetric { state }) => state.clone(),
        _ => metric.set_to(value),
    };
    let index = moved.now(place, *index);
    let netlink = &kernel.at(place)?.netlink;
    let Some(now) = netlink.route_metric(dst, index, metric)? else { return Ok(Undone::Gone) };
    put_back(&now, old, &ours, || Ok(netlink.route_set_metric(dst, index, metric, old)?))
}

fn read(
    kernel: &mut Kernel,
    place: &Place,
    (dst, link): (&IpNet, &IfName),
    metric: RouteMetric,
) -> Result<MetricState, StepError> {
    let index = existing(kernel, place, link)?.index;
    let found = kernel.at(place)?.netlink.route_metric(dst, index, metric)?;
    found.ok_or_else(|| StepError::Refused {
        why: format!("the main table has no route to {dst} that leads by link {link} alone"),
    })
}
