"""Reading by REST: shapes, filters, pages, and what is not there."""

from __future__ import annotations

import io

import pytest
from flask.testing import FlaskClient

from tests.api.conftest import GPU
from vgpumgr.kernel.recorded import open_recording
from vgpumgr.service import Service


def test_the_inventory_is_the_contract_of_the_command_line(client: FlaskClient) -> None:
    body = client.get("/v1/host/inventory").get_json()
    assert set(body) == {"host", "iommu_groups", "gpus", "virtual_parents", "warnings"}
    assert body["host"] == client.get("/v1/host").get_json()


def test_gpus_are_filtered_and_paged(client: FlaskClient) -> None:
    first = client.get("/v1/gpus?kind=gpu&limit=3")
    body = first.get_json()
    assert [gpu["kind"] for gpu in body["items"]] == ["gpu"] * 3
    assert 'rel="next"' in first.headers["Link"]
    rest = client.get(f"/v1/gpus?kind=gpu&limit=3&cursor={body['next_cursor']}").get_json()
    assert len(rest["items"]) == 1
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("spelling", ["0000:3b:00.0", "3b:00.0", "00000000:3B:00.0", "0000%3A3b%3A00.0"])
def test_an_address_may_be_spelled_in_any_way(client: FlaskClient, spelling: str) -> None:
    assert client.get(f"/v1/gpus/{spelling}").get_json()["address"] == GPU


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/gpus/0000:99:00.0", "gpu-unknown"),
        ("/v1/gpus/0000:00:1c.0", "gpu-unknown"),
        ("/v1/iommu-groups/9999", "group-unknown"),
        ("/v1/allocations/nothing", "allocation-unknown"),
        ("/v1/operations/nothing", "operation-unknown"),
        ("/v1/vms/nothing", "vm-unknown"),
        ("/v1/nothing", "not-found"),
    ],
)
def test_what_is_not_there_is_a_problem_with_a_code(client: FlaskClient, path: str, code: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.mimetype == "application/problem+json"
    assert answer.get_json()["code"] == code


def test_groups_can_be_asked_for_by_viability(client: FlaskClient) -> None:
    viable = client.get("/v1/iommu-groups?viable=true").get_json()["items"]
    assert viable
    assert all(group["viable"] for group in viable)


def test_the_doctor_speaks_of_every_gpu(client: FlaskClient) -> None:
    body = client.get("/v1/host/doctor").get_json()
    assert {gpu["address"] for gpu in body["gpus"]} == {
        gpu["address"] for gpu in client.get("/v1/gpus").get_json()["items"]
    }


def test_a_snapshot_reads_again_as_the_same_host(
    client: FlaskClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from vgpumgr.inventory import take_inventory

    content = client.get("/v1/host/snapshot").data
    file = tmp_path_factory.mktemp("snapshot") / "host.tar"
    file.write_bytes(io.BytesIO(content).read())
    again = take_inventory(open_recording(str(file)))
    assert [gpu.address for gpu in again.gpus] == [
        gpu["address"] for gpu in client.get("/v1/gpus").get_json()["items"]
    ]


def test_health_readiness_and_documents_are_there(client: FlaskClient) -> None:
    assert client.get("/healthz").get_json()["status"] == "ok"
    assert client.get("/readyz").status_code == 200
    assert client.get("/openapi.json").get_json()["info"]["title"] == "vgpumgr"
    assert client.get("/docs", follow_redirects=True).status_code == 200


def test_before_the_host_is_reconciled_nothing_can_be_changed(client: FlaskClient, service: Service) -> None:
    service._waiting_for = ["bindings to be restored"]
    assert client.get("/readyz").status_code == 503
    answer = client.post(f"/v1/gpus/{GPU}/bind", json={})
    assert answer.status_code == 503
    assert answer.get_json()["code"] == "starting"
    assert "Retry-After" in answer.headers
