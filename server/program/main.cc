// attnd.

#include "server/program/devices.h"
#include "server/program/program.h"

int main(int argc, char** argv) {
  return attnd::server::RunProgram(argc, argv, attnd::server::CreateDevices);
}
